// Settings that no machine can serve.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
use nn; use optim; use schedules;

module net(d) {
  param w: [d] = ones;
  fn (x: [b, d]) { return mean(x * w); }
}

train {
  model     net = net(8);
  batch     microbatch = 4, microbatches = 2000000;
  data      x = synthetic(8);
  loss      net(x);
  ranks     100000;
  schedule  gpipe;
  optimizer sgd(lr = constant(0.1));
  steps     1;
}

// CHECK: train_large.pp:16:13: error: 'ranks' is too large: 100000
// CHECK: train_large.pp:13:44: error: 'microbatches' is too large: 2000000
