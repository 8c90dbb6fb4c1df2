// The loss sees the model and the data.
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
  loss      nett(y);
  ranks     1;
  schedule  gpipe;
  optimizer sgd(lr = constant(0.1));
  steps     1;
}

// CHECK: train_loss_name.pp:15:13: error: unknown name 'nett'
// CHECK: train_loss_name.pp:12:13: note: did you mean 'net'?
// CHECK: train_loss_name.pp:15:18: error: unknown name 'y'
