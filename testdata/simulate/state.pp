// A schedule may change a list of its file, so that it does something else each time. What was checked is what comes out.
// RUN: %ppc check %s --schedule=seventeenth --ranks=2 --microbatches=2 | %FileCheck --check-prefix=LATE
// RUN: cat %root/testdata/models/mlp.pp %s >m.pp; %ppc dump m.pp --schedule=turns --microbatches=2 --format=csv | %FileCheck --check-prefix=ONCE

const runs = [0];

// Sixteen numbers of stages are tried, and the one that came furthest once more.
schedule seventeenth(ranks, stages, microbatches) {
  runs[0] += 1;
  require runs[0] == 17, "not yet";
  rank r { for i in 0..microbatches { fwd(r, i); bwd(r, i); } }
}
// LATE: seventeenth, 2 ranks, 2 stages, 2 microbatches

schedule turns(ranks, stages, microbatches) {
  runs[0] += 1;
  rank r {
    for i in 0..microbatches { fwd(r, i); if runs[0] == 1 { bwd(r, i); } }
    if runs[0] > 1 { for i in 0..microbatches { bwd(r, i); } }
  }
}
// ONCE: 0F0,,,0B0,0F1,,,0B1
// ONCE-NEXT: ,1F0,1B0,,,1F1,1B1,
