// Without --stages every multiple of the ranks is tried. When none will do, the error is that of the attempt that came furthest:
// past every `require` before one that was refused, past an earlier `require` before one that was refused there.
// RUN: ! %ppc check %s --schedule=lost --ranks=2 --microbatches=3 2>e; cat e | %FileCheck --check-prefix=LOST
// RUN: ! %ppc check %s --schedule=both --ranks=2 --microbatches=3 2>e; cat e | %FileCheck --check-prefix=BOTH
// RUN: ! %ppc check --schedule='interleaved_1f1b(3)' --ranks=4 --microbatches=9 2>e; cat e | %FileCheck --check-prefix=ROUNDS

// Two stages on each rank, and a loop that ends too soon.
schedule lost(ranks, stages, microbatches) {
  require stages == 2 * ranks, "lost runs two stages on each rank";
  rank r {
    let back = 2 * ranks - 1 - r;
    for i in 0..microbatches { fwd(r, i); fwd(back, i); bwd(back, i); }
    for i in 0..microbatches - 1 { bwd(r, i); }
  }
}
// LOST: --schedule:1:1: error: rank 0 never runs bwd(0, 2): microbatch 2 of stage 0 is missing
// LOST: error: rank 1 never runs bwd(1, 2): microbatch 2 of stage 1 is missing
// LOST: --schedule:1:1: note: this is for 4 stages; no multiple of 2 up to 32 does better (--stages=N)
// LOST-NOT: two stages on each rank

schedule both(ranks, stages, microbatches) {
  require stages == 3 * ranks, "both runs three stages on each rank";
  require mod(microbatches, 2) == 0, "both takes microbatches two by two";
  rank r { for i in 0..microbatches { fwd(r, i); bwd(r, i); } }
}
// BOTH: --schedule:1:1: error: both takes microbatches two by two
// BOTH: furthest.pp:[[#@LINE-4]]:3: note: required here: microbatches = 3
// BOTH: --schedule:1:1: note: this is for 6 stages

// ROUNDS: --schedule:1:1: error: {{.*}}microbatches
// ROUNDS: note: required here: {{.*}}microbatches = 9
// ROUNDS: note: this is for 12 stages
