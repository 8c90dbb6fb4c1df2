// A schedule is a schedule.
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
  schedule  sgd;
  optimizer gpipe;
  steps     1;
}

// CHECK: train_schedule_kind.pp:18:13: error: 'optimizer' needs an optimizer, not a schedule
// CHECK: train_schedule_kind.pp:17:13: error: 'schedule' needs a schedule, not an optimizer
