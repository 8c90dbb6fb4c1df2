// Stages and microbatches are ints.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
use nn; use optim; use schedules;

schedule mine(ranks, stages, microbatches) {
  rank r {
    for i in 0..microbatches { fwd(r, "a"); bwd(r, 0.5); fwd(r); bwd(r, i, 3); }
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

// CHECK: schedule_type.pp:8:39: error: 'fwd' needs an int for the microbatch, not a string
// CHECK: schedule_type.pp:29:13: note: in the call of 'mine' here
// CHECK: schedule_type.pp:8:52: error: 'bwd' needs an int for the microbatch, not the float 0.5
// CHECK: schedule_type.pp:29:13: note: in the call of 'mine' here
// CHECK: schedule_type.pp:8:58: error: 'fwd' needs argument 'microbatch'
// CHECK: schedule_type.pp:29:13: note: in the call of 'mine' here
// CHECK: schedule_type.pp:8:76: error: 'bwd' takes 2 arguments by place, here are 3
// CHECK: schedule_type.pp:29:13: note: in the call of 'mine' here
