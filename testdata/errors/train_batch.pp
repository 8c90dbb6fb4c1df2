// A batch has two numbers, by name: one error says so.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
use nn; use optim; use schedules;

module net(d) {
  param w: [d] = ones;
  fn (x: [b, d]) { return mean(x * w); }
}

train {
  model     net = net(8);
  batch     4;
// CHECK: train_batch.pp:[[# @LINE - 1]]:13: error: write 'batch microbatch = SAMPLES, microbatches = COUNT;'
  data      x = synthetic(8);
  loss      net(x);
  ranks     1;
  schedule  gpipe;
  optimizer sgd(lr = constant(0.1));
  steps     1;
}
