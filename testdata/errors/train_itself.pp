// A setting that needs itself.
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
  ranks     steps;
  schedule  gpipe;
  optimizer sgd(lr = constant(0.1));
  steps     ranks + 1;
}

// CHECK: train_itself.pp:16:13: error: 'ranks' depends on itself
// CHECK: train_itself.pp:19:13: note: it is needed here to compute its own value
