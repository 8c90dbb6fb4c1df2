// -D names a const of the file.
//
// RUN: %ppc check %s -D widht=3 -D width=8 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
use nn; use optim; use schedules;

const width = 8;

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
  steps     1;
}

// CHECK: ppc: error: -D widht: '{{.*}}train_option_define.pp' has no const of that name
// CHECK: train_option_define.pp:6:7: note: did you mean 'width'?
