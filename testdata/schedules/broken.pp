// One broken schedule per message of the schedule pass.
// RUN: ! %ppc check %s --schedule=two_ranks 2>e; cat e; cat e | %FileCheck --check-prefix=TWO
// RUN: ! %ppc check %s --schedule=twice 2>e; cat e; cat e | %FileCheck --check-prefix=TWICE
// RUN: ! %ppc check %s --schedule=missing 2>e; cat e; cat e | %FileCheck --check-prefix=MISSING
// RUN: ! %ppc check %s --schedule=absent 2>e; cat e; cat e | %FileCheck --check-prefix=ABSENT
// RUN: ! %ppc check %s --schedule=idle 2>e; cat e; cat e | %FileCheck --check-prefix=IDLE
// RUN: ! %ppc check %s --schedule=order 2>e; cat e; cat e | %FileCheck --check-prefix=ORDER
// RUN: ! %ppc check %s --schedule=weight_first 2>e; cat e; cat e | %FileCheck --check-prefix=WEIGHT
// RUN: ! %ppc check %s --schedule=both 2>e; cat e; cat e | %FileCheck --check-prefix=BOTH
// RUN: ! %ppc check %s --schedule=half 2>e; cat e; cat e | %FileCheck --check-prefix=HALF
// RUN: ! %ppc check %s --schedule=cycle 2>e; cat e; cat e | %FileCheck --check-prefix=CYCLE
// RUN: ! %ppc check %s --schedule=own_order 2>e; cat e; cat e | %FileCheck --check-prefix=OWN
// RUN: ! %ppc check %s --schedule=dependent_overlap 2>e; cat e; cat e | %FileCheck --check-prefix=OVERLAP
// RUN: %ppc check %s --schedule=reversed 2>e >o; cat e; cat e | %FileCheck --check-prefix=REVERSED
use nn;
use optim;

module net(d) {
  first: linear(d, d);
  last: linear(d, d);
  fn (sample: [b, d]) {
    let x = first(cast(sample, real));
    stage_end;
    return mean_squared_error(last(x), 0.5 * x);
  }
}

fn forwards(stage, microbatches) { for i in 0..microbatches { fwd(stage, i); } }

schedule two_ranks(ranks, stages, microbatches) {
  rank r {
    forwards(r, microbatches);
    if r == 1 { bwd(1, 0); bwd(0, 1); }
  }
}
// TWO: broken.pp:33:28: error: stage 0 runs on rank 1 (microbatch 1) and on rank 0: a stage lives on one rank
// TWO: broken.pp:32:5: note: rank 0 runs it here (microbatch 0)

schedule twice(ranks, stages, microbatches) {
  rank r {
    forwards(r, microbatches);
    for i in 0..microbatches { bwd(r, i); }
    if r == 1 { bwd(r, 2); }
  }
}
// TWICE: broken.pp:43:17: error: bwd(1, 2) runs twice on rank 1
// TWICE: broken.pp:42:32: note: it ran here before

schedule missing(ranks, stages, microbatches) {
  rank r {
    forwards(r, microbatches);
    for i in 0..microbatches - 1 + r { bwd(r, i); }
  }
}
// MISSING: --schedule:1:1: error: rank 0 never runs bwd(0, 2): microbatch 2 of stage 0 is missing
// MISSING: broken.pp:51:5: note: rank 0 runs stage 0 here

schedule absent(ranks, stages, microbatches) {
  rank r { if r == 0 { forwards(0, microbatches); for i in 0..microbatches { bwd(0, i); } } else { fwd(0, 0); } }
}
// ABSENT: error: stage 0 runs on rank 1 (microbatch 0) and on rank 0

schedule idle(ranks, stages, microbatches) {
  rank r { if r == 0 { for s in 0..2 { forwards(s, microbatches); } for i in 0..microbatches { bwd(1, i); bwd(0, i); } } }
}
// IDLE: error: rank 1 runs nothing under this schedule

schedule order(ranks, stages, microbatches) {
  rank r {
    for i in 0..microbatches {
      if i == 1 and r == 1 { bwd(r, i); fwd(r, i); }
      else { fwd(r, i); bwd(r, i); }
    }
  }
}
// ORDER: broken.pp:71:30: error: rank 1 runs bwd(1, 1) before fwd(1, 1)
// ORDER: broken.pp:71:41: note: fwd(1, 1) comes here

schedule weight_first(ranks, stages, microbatches) {
  rank r { for i in 0..microbatches { fwd(r, i); bwd_weight(r, i); bwd_input(r, i); } }
}
// WEIGHT: broken.pp:80:50: error: rank 0 runs bwd_weight(0, 0) before bwd_input(0, 0)

schedule both(ranks, stages, microbatches) {
  rank r { for i in 0..microbatches { fwd(r, i); bwd(r, i); if i == 2 { bwd_weight(r, i); } } }
}
// BOTH: broken.pp:85:50: error: rank 0 runs both bwd(0, 2) and its weight half
// BOTH: broken.pp:85:73: note: bwd_weight(0, 2) is here

schedule half(ranks, stages, microbatches) {
  rank r { for i in 0..microbatches { fwd(r, i); bwd_input(r, i); if i > 0 { bwd_weight(r, i); } } }
}
// HALF: error: rank 0 never runs bwd_weight(0, 0): microbatch 0 of stage 0 is missing

// Rank 1 wants microbatch 1 first, rank 0 makes it after it has had the gradient of 0.
schedule cycle(ranks, stages, microbatches) {
  rank r {
    if r == 0 { for i in 0..microbatches { fwd(0, i); bwd(0, i); } }
    else { for i in reverse(0..microbatches) { fwd(1, i); } for i in 0..microbatches { bwd(1, i); } }
  }
}
// CYCLE: broken.pp:98:55: error: this schedule can't finish: rank 0 waits in bwd(0, 0) for {{.*}} of bwd(1, 0), which stands behind an action that waits
// CYCLE: broken.pp:99:48: note: rank 1 waits in fwd(1, 2) for x {{.*}} of fwd(0, 2), which stands behind an action that waits
// CYCLE-NOT: rank

schedule own_order(ranks, stages, microbatches) {
  rank r {
    if r == 0 { forwards(1, microbatches); forwards(0, microbatches); for i in 0..microbatches { bwd(1, i); bwd(0, i); } }
    require ranks == 2, "two ranks";
  }
}
// OWN: error: rank 1 runs nothing under this schedule

schedule dependent_overlap(ranks, stages, microbatches) {
  rank r { for i in 0..microbatches { if r == 1 { overlap { fwd(1, i); bwd(1, i); } } else { fwd(0, i); bwd(0, i); } } }
}
// OVERLAP: broken.pp:115:72: error: this schedule can't finish: rank 1 waits in bwd(1, 0) for {{.*}} of fwd(1, 0), which stands in the same overlap block

schedule reversed(ranks, stages, microbatches) {
  rank r { forwards(r, microbatches); for i in reverse(0..microbatches) { bwd(r, i); } }
}
// REVERSED: broken.pp:120:75: warning: stage 0 adds the gradient of microbatch 1 after that of 2: results equal one rank's within rounding, not to the bit
// REVERSED: note: another stage does so too

train {
  model     net = net(8);
  batch     microbatch = 2, microbatches = 3;
  data      x = synthetic(8);
  loss      net(x);
  ranks     2;
  schedule  reversed;
  optimizer sgd(lr = constant(0.1));
  steps     1;
}
