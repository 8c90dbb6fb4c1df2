// Trailing axes must be equal or 1.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
use nn; use optim; use schedules;

module net(d) {
  param w: [d] = ones;
  fn (x: [b, d]) {
    let y = x + random([3]);
    let z = select(x > 0.0, x, random([5, 8]));
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

// CHECK: shape_broadcast.pp:9:15: error: f32[4, 8] and f32[3] do not broadcast: axis -1 differs
// CHECK: shape_broadcast.pp:19:13: note: in the call of 'net' here
// CHECK: shape_broadcast.pp:10:13: error: f32[4, 8], f32[5, 8] and bool[4, 8] do not broadcast: axis -2 differs
// CHECK: shape_broadcast.pp:19:13: note: in the call of 'net' here
