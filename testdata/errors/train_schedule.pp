// A schedule or an optimizer that is none.
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
  schedule  gpip;
  optimizer linear(3);
  steps     1;
}

// CHECK: train_schedule.pp:17:13: error: unknown name 'gpip'
// CHECK: <library>/schedules.pp:{{.*}}: note: did you mean 'gpipe'?
