// Every key that is needed.
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
  ranks     1;
  schedule  gpipe;
  steps     1;
}

// CHECK: train_missing.pp:11:7: error: 'train' needs 'loss'
// CHECK: train_missing.pp:11:7: error: 'train' needs 'optimizer'
