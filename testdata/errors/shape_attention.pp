// Attention takes [b, heads, t, d], keys that divide the heads.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
use nn; use optim; use schedules;

module net(d) {
  param w: [d] = ones;
  fn (x: [b, d]) {
    let y = attention(x, x, x);
    let q = random([1, 3, 4, 8]);
    let k = random([1, 2, 4, 8]);
    let z = attention(q, k, k);
    let r = attention(q, q, random([1, 3, 5, 8]));
    return mean(x * w);
  }
}

train {
  model     net = net(8);
  batch     microbatch = 4, microbatches = 2;
  data      x = synthetic(8);
  loss      net(x);
  ranks     1;
  schedule  gpipe;
  optimizer sgd(lr = constant(0.1));
  steps     1;
}

// CHECK: shape_attention.pp:9:23: error: 'attention' works on float tensors [b, heads, t, d], not on f32[4, 8]
// CHECK: shape_attention.pp:22:13: note: in the call of 'net' here
// CHECK: shape_attention.pp:12:13: error: 'attention': 3 query heads are no multiple of 2 key heads
// CHECK: shape_attention.pp:22:13: note: in the call of 'net' here
// CHECK: shape_attention.pp:13:13: error: 'attention': keys f32[1, 3, 4, 8] and values f32[1, 3, 5, 8] differ
// CHECK: shape_attention.pp:22:13: note: in the call of 'net' here
