// Tensors are values.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
use nn; use optim; use schedules;

module net(d) {
  param w: [d] = ones;
  fn (x: [b, d]) {
    x[0] = 1.0;
    x += random([3]);
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

// CHECK: shape_assign.pp:9:6: error: a tensor's elements can't be assigned
// CHECK: shape_assign.pp:9:6: note: select, concat and pad build new tensors
// CHECK: shape_assign.pp:19:13: note: in the call of 'net' here
// CHECK: shape_assign.pp:10:10: error: f32[4, 8] and f32[3] do not broadcast: axis -1 differs
// CHECK: shape_assign.pp:19:13: note: in the call of 'net' here
