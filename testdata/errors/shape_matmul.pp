// Columns meet rows.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
use nn; use optim; use schedules;

module net(d) {
  param w: [d] = ones;
  fn (x: [b, d]) {
    let y = x @ random([4, 8]);
    let z = x @ 3;
    let q = x @ random([8]);
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

// CHECK: shape_matmul.pp:9:15: error: f32[4, 8] @ f32[4, 8]: 8 columns meet 4 rows
// CHECK: shape_matmul.pp:20:13: note: in the call of 'net' here
// CHECK: shape_matmul.pp:10:15: error: '@' works on two tensors, not on the int 3
// CHECK: shape_matmul.pp:20:13: note: in the call of 'net' here
