// Overlapping actions do not depend on one another, nor stand in two blocks.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
use nn; use optim; use schedules;

schedule mine(ranks, stages, microbatches) {
  rank r {
    for i in 0..microbatches { overlap { fwd(r, i); overlap { bwd(r, i); } } }
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

// CHECK: schedule_overlap.pp:8:53: error: an overlap block can't stand in another
// CHECK: schedule_overlap.pp:29:13: note: in the call of 'mine' here
