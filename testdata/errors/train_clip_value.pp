// A clip is a function.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
use nn; use optim; use schedules;

module net(d) {
  param w: [d] = ones;
  fn (x: [b, d]) { return mean(x * w); }
}

train {
  model     net = net(8);
  batch     microbatch = 4, microbatches = 2;
  data      x = synthetic(8);
  loss      net(x);
  ranks     1;
  schedule  gpipe;
  optimizer sgd(lr = constant(0.1));
  clip      1.0;
  steps     1;
}

// CHECK: train_clip_value.pp:19:13: error: a clip is a function of the gradient norm, but this is the float 1.0
// CHECK: train_clip_value.pp:19:13: note: global_norm(limit) of the library makes one
