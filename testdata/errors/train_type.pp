// Settings of the wrong type.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
use nn; use optim; use schedules;

module net(d) {
  param w: [d] = ones;
  fn (x: [b, d]) { return mean(x * w); }
}

train {
  model     net = net(8);
  batch     microbatch = "a", microbatches = 2.5;
  data      x = synthetic(8);
  loss      net(x);
  ranks     gpipe;
  schedule  gpipe;
  optimizer sgd(lr = constant(0.1));
  steps     true;
  seed      1.5;
  dtype     i32;
}

// CHECK: train_type.pp:21:13: error: 'dtype' is f32 or f64, not the dtype i32
// CHECK: train_type.pp:16:13: error: 'ranks' needs an int, not a schedule
// CHECK: train_type.pp:13:26: error: 'microbatch' needs an int, not a string
// CHECK: train_type.pp:13:46: error: 'microbatches' needs an int, not the float 2.5
// CHECK: train_type.pp:19:13: error: 'steps' needs an int, not the bool true
// CHECK: train_type.pp:20:13: error: 'seed' needs an int, not the float 1.5
