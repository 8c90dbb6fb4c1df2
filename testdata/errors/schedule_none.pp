// A stage that no rank runs.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
use nn; use optim; use schedules;

schedule mine(ranks, stages, microbatches) {
  rank r {
    for i in 0..microbatches { fwd(r, i); bwd(r, i); }
  }
}

module net(d) {
  h[3]: linear(d, d);
  fn (x: [b, d]) {
    for i in 0..3 {
      x = h[i](x);
      if i + 1 < 3 { stage_end; }
    }
    return mean(x);
  }
}

train {
  model     net = net(8);
  batch     microbatch = 4, microbatches = 2;
  data      x = synthetic(8);
  loss      net(x);
  ranks     2;
  schedule  mine;
  optimizer sgd(lr = constant(0.1));
  steps     1;
}

// CHECK: schedule_none.pp:29:13: error: no rank runs stage 2
// CHECK: schedule_none.pp:29:13: note: the model has 3 stages (its `stage_end` markers + 1), the schedule runs 2 of them
