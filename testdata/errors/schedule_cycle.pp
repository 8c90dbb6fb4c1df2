// Rank 0 wants a gradient before it sends what rank 1 needs first.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
use nn; use optim; use schedules;

schedule mine(ranks, stages, microbatches) {
  rank r {
    if r == 0 { for i in 0..microbatches { fwd(0, i); bwd(0, i); } }
    else { for i in reverse(0..microbatches) { fwd(1, i); } for i in 0..microbatches { bwd(1, i); } }
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

// CHECK: schedule_cycle.pp:8:55: error: this schedule can't finish: rank 0 waits in bwd(0, 0) for dx (nn.pp:25) of bwd(1, 0), which stands behind an action that waits
// CHECK: schedule_cycle.pp:9:48: note: rank 1 waits in fwd(1, 1) for x (nn.pp:26) of fwd(0, 1), which stands behind an action that waits
