// Settings that must be positive.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
use nn; use optim; use schedules;

module net(d) {
  param w: [d] = ones;
  fn (x: [b, d]) { return mean(x * w); }
}

train {
  model     net = net(8);
  batch     microbatch = 0, microbatches = 0;
  data      x = synthetic(8);
  loss      net(x);
  ranks     0;
  schedule  gpipe;
  optimizer sgd(lr = constant(0.1));
  steps     -1;
}

// CHECK: train_zero.pp:16:13: error: 'ranks' must be at least 1, not 0
// CHECK: train_zero.pp:13:26: error: 'microbatch' must be at least 1, not 0
// CHECK: train_zero.pp:13:44: error: 'microbatches' must be at least 1, not 0
// CHECK: train_zero.pp:19:13: error: 'steps' must be at least 0, not -1
