// Unknown, repeated and missing keys.
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
  stpes     1;
  ranks     2;
}

// CHECK: train_key.pp:19:3: error: 'train' has no setting 'stpes'
// CHECK: train_key.pp:19:3: note: did you mean 'steps'?
// CHECK: train_key.pp:20:3: error: 'ranks' is set twice
// CHECK: train_key.pp:16:3: note: it is set here first
// CHECK: train_key.pp:11:7: error: 'train' needs 'steps'
