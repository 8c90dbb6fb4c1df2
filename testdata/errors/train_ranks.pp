// More ranks than stages.
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
  ranks     2;
  schedule  gpipe;
  optimizer sgd(lr = constant(0.1));
  steps     1;
}

// CHECK: train_ranks.pp:17:13: error: the stages must be a multiple of the ranks
// CHECK: <library>/schedules.pp:{{.*}}: note: required here: stages = 1, ranks = 2
