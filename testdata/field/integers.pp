// Integers and masks made in stage 0 and used in every stage: one forward transfer for each rank that uses
// them, no gradient of them, whole or halved backward passes.
//
// RUN: %ppc run %s --ranks=1 --json >base.json
// RUN: %ppc run %s --schedule=one_f_one_b --json >1f1b.json
// RUN: %ppc run %s --schedule=halved --json >halved.json
// RUN: python3 %root/testdata/compare.py same base.json 1f1b.json halved.json
// RUN: for s in one_f_one_b halved; do %ppc check %s --schedule=$s >check.txt && %FileCheck <check.txt || exit 1; done
// CHECK: rank 0 to 1: 4 × 48 positions
// CHECK: rank 0 to 1: 4 × 12 mask
// CHECK: rank 0 to 2: 4 × 48 positions
// CHECK: rank 0 to 2: 4 × 12 mask
// CHECK: rank 0 to 3: 4 × 48 positions
// CHECK: rank 0 to 3: 4 × 12 mask
// CHECK-NOT: dpositions
// CHECK-NOT: dmask
use nn; use optim; use schedules;

schedule halved(ranks, stages, microbatches) {
  rank r {
    for i in 0..microbatches { fwd(r, i); }
    for i in 0..microbatches { bwd_input(r, i); }
    for i in 0..microbatches { bwd_weight(r, i); }
  }
}

module net(d, n) {
  wte: embedding(n, d, std = 0.3);
  place[4]: embedding(n, d, std = 0.3);
  h[4]: linear(d, d, std = 0.3);
  fn (ids: i32[b, t]) {
    let x = wte(ids);
    let positions = cast(min(abs(8.0 * mean(x, axis = -1)), n - 1.0), i32);
    let mask = mean(x, axis = -1, keep = true) > 0.0;
    for i in 0..4 {
      x = x + select(mask, h[i](x + place[i](positions)), 0.0);
      if i < 3 { stage_end; }
    }
    return mean(x * x);
  }
}

train {
  model     net = net(8, 16);
  batch     microbatch = 2, microbatches = 4;
  data      ids = synthetic(6, 16);
  loss      net(ids);
  ranks     4;
  schedule  one_f_one_b;
  optimizer sgd(lr = 0.1);
  steps     3;
}
