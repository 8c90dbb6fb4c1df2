// Stages and microbatches count from 0.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
use nn; use optim; use schedules;

schedule mine(ranks, stages, microbatches) {
  rank r {
    for i in 0..microbatches + 1 { fwd(r, i); bwd(r, i); }
    fwd(2, 0);
    fwd(-1, 0);
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

// CHECK: schedule_range.pp:8:43: error: microbatch 2 is out of range: there are 2, from 0 (stage 0, on rank 0)
// CHECK: schedule_range.pp:27:3: note: 2 microbatches here
// CHECK: schedule_range.pp:31:13: note: in the call of 'mine' here
