// Values by place or by name.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
use nn; use optim; use schedules;

module net(d) {
  param w: [d] = ones;
  fn (x: [b, d]) { return mean(x * w); }
}

train {
  model     net = net(8);
  batch     microbatches = 2;
  data      x = synthetic(8), y = 3;
  loss      net(x);
  ranks     n = 1;
  schedule  gpipe;
  optimizer sgd(lr = constant(0.1));
  steps     1, 2;
}

// CHECK: train_form.pp:13:3: error: 'batch' needs 'microbatch = VALUE'
// CHECK: train_form.pp:14:31: error: 'data' takes one value
// CHECK: train_form.pp:16:13: error: write 'ranks VALUE;', without a name
// CHECK: train_form.pp:19:16: error: 'steps' takes one value
