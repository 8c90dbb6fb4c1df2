// A clip of zero would stop training without a word.
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
  clip      global_norm(0.0);
  steps     1;
}

// CHECK: train_clip.pp:19:13: error: the limit of global_norm must be positive
// CHECK: <library>/optim.pp:{{.*}}: note: required here: limit = 0.0
