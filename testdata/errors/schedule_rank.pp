// Ranks run what is theirs.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
use nn; use optim; use schedules;

schedule mine(ranks, stages, microbatches) {
  rank r {
    if r == 0 {
      for i in 0..microbatches { fwd(0, i); fwd(1, i); bwd(1, i); bwd(0, i); }
    } else {
      fwd(1, 0);
    }
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

// CHECK: schedule_rank.pp:11:7: error: stage 1 runs on rank 1 (microbatch 0) and on rank 0: a stage lives on one rank
// CHECK: schedule_rank.pp:9:45: note: rank 0 runs it here (microbatch 0)
