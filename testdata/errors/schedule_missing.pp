// Every stage has its backward passes.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
use nn; use optim; use schedules;

schedule mine(ranks, stages, microbatches) {
  rank r {
    for i in 0..microbatches { fwd(r, i); }
    for i in 0..1 { bwd(r, i); }
  }
}

module net(d) {
  h[2]: linear(d, d);
  fn (x: [b, d]) {
    for i in 0..2 {
      x = h[i](x);
      if i + 1 < 2 { stage_end; }
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

// CHECK: schedule_missing.pp:30:13: error: rank 0 never runs bwd(0, 1): microbatch 1 of stage 0 is missing
// CHECK: schedule_missing.pp:8:32: note: rank 0 runs stage 0 here
// CHECK: schedule_missing.pp:30:13: error: rank 1 never runs bwd(1, 1): microbatch 1 of stage 1 is missing
// CHECK: schedule_missing.pp:8:32: note: rank 1 runs stage 1 here
