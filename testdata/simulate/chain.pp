// Schedules of a few actions each, with what they cost worked out by hand; nothing here needs a model.
// RUN: %ppc simulate %s --schedule=mixed --ranks=2 --microbatches=2 --cost F=1,I=2,W=4,transfer=0.5 --json >o; cat o | %FileCheck --check-prefix=MIXED
// RUN: %ppc simulate %s --schedule=mixed --ranks=2 --microbatches=2 --cost F=[1,10],B=[3,20],I=5,W=5 | %FileCheck --check-prefix=LIST
// RUN: %ppc simulate %s --schedule=pairs --ranks=1 --microbatches=3 | %FileCheck --check-prefix=SUM
// RUN: %ppc simulate %s --schedule=pairs --ranks=1 --microbatches=3 --cost pair=1.5 | %FileCheck --check-prefix=PAIR
// RUN: %ppc simulate %s --schedule=folded --ranks=3 --microbatches=1 | %FileCheck --check-prefix=FOLDED
// RUN: ! %ppc simulate %s --schedule=folded --stages=9 --ranks=3 --microbatches=1 2>e; cat e | %FileCheck --check-prefix=NINE
// RUN: ! %ppc simulate %s --schedule=needy --ranks=3 --microbatches=1 2>e; cat e | %FileCheck --check-prefix=NEEDY
// RUN: ! %ppc simulate %s --schedule=cycle --ranks=2 --microbatches=3 2>e; cat e | %FileCheck --check-prefix=CYCLE
// RUN: ! %ppc simulate %s --schedule=dependent --ranks=2 --microbatches=3 2>e; cat e | %FileCheck --check-prefix=DEPENDENT
// RUN: ! %ppc simulate %s --schedule=short --ranks=2 --microbatches=3 2>e; cat e | %FileCheck --check-prefix=SHORT
// RUN: ! %ppc simulate %s --schedule=absent --ranks=1 --stages=3 --microbatches=1 2>e; cat e | %FileCheck --check-prefix=ABSENT
// RUN: ! %ppc simulate %s --schedule=outside --ranks=2 --microbatches=3 2>e; cat e | %FileCheck --check-prefix=OUTSIDE
// RUN: ! %ppc simulate %s --schedule=endless --ranks=2 --microbatches=3 2>e; cat e | %FileCheck --check-prefix=ENDLESS

// Rank 1 is whole, rank 0 in halves. F 0…1 and 1…2; x arrives at 1.5 and 2.5; rank 1: F 1.5…2.5, B (6) …8.5,
// F …9.5, B …15.5; gradients at 9 and 16: rank 0: I 9…11, W …15, I 16…18, W …22.
schedule mixed(ranks, stages, microbatches) {
  rank r {
    if r == 0 {
      for i in 0..microbatches { fwd(0, i); }
      for i in 0..microbatches { bwd_input(0, i); bwd_weight(0, i); }
    } else {
      for i in 0..microbatches { fwd(1, i); bwd(1, i); }
    }
  }
}
// MIXED: "schedule": "mixed",
// MIXED-NEXT: "n_ranks": 2,
// MIXED-NEXT: "stages": 2,
// MIXED-NEXT: "microbatches": 2,
// MIXED-NEXT: "costs": {
// MIXED-NEXT: "F": 1,
// MIXED-NEXT: "I": 2,
// MIXED-NEXT: "W": 4,
// MIXED-NEXT: "transfer": 0.5
// MIXED: "step_time": 22,
// MIXED-NEXT: "bubble": 8,
// MIXED-NEXT: "bubble_rate": 0.3636
// MIXED: "rank": 0,
// MIXED-NEXT: "actions": 6,
// MIXED-NEXT: "start": 0,
// MIXED-NEXT: "end": 22,
// MIXED-NEXT: "work": 14,
// MIXED-NEXT: "bubble": 8,
// MIXED-NEXT: "peak_live": 2,
// MIXED-NEXT: "peak_live_weight_held": 2
// MIXED: "rank": 1,
// MIXED-NEXT: "actions": 4,
// MIXED-NEXT: "start": 1.5,
// MIXED-NEXT: "end": 15.5,
// MIXED: "peak_live": 1,
// MIXED: "critical_path": [
// MIXED: "kind": "fwd",
// MIXED-NEXT: "stage": 0,
// MIXED-NEXT: "microbatch": 0,
// MIXED-NEXT: "start": 0,
// MIXED-NEXT: "end": 1,
// MIXED-NEXT: "line": "chain.pp:[[#@LINE-38]]"
// Stage 1 costs 10 and 20, and holds rank 0 up: 1 + 2 * 30 + 5 + 5.
// LIST: mixed, 2 ranks, 2 stages, 2 microbatches
// LIST-NEXT: step 71, bubble 11: 15.49% of the step
// LIST: rank 0 6 22 49 69.01% 2 2
// LIST: rank 1 4 60 11 15.49% 1 1
// LIST: critical path:
// LIST-NEXT: 0 … 1 rank 0 fwd(0, 0) chain.pp:21
// LIST-NEXT: 1 … 61 rank 1 fwd(1, 0), 2 more, bwd(1, 1)
// LIST-NEXT: 61 … 71 rank 0 bwd_input(0, 1), bwd_weight(0, 1)

// F, two blocks, B: 9 when a block costs the sum, 1 + 2 * 1.5 + 2 when it costs 1.5.
schedule pairs(ranks, stages, microbatches) {
  rank r {
    fwd(0, 0);
    for i in 0..microbatches - 1 { overlap { fwd(0, i + 1); bwd(0, i); } }
    bwd(0, microbatches - 1);
  }
}
// SUM: step 9, bubble 0: 0.00% of the step
// SUM: rank 0 6 9 0 0.00% 2 2
// SUM: 0 … 9 rank 0 fwd(0, 0), 4 more, bwd(0, 2) chain.pp:[[#@LINE-7]] … chain.pp:[[#@LINE-5]]
// PAIR: step 6, bubble 0: 0.00% of the step
// PAIR: rank 0 6 6 0 0.00% 2 2

// Two stages on each rank are the fewest: 6 F, then 6 B of 2.
schedule folded(ranks, stages, microbatches) {
  require stages == 2 * ranks, "folded runs two stages on each rank";
  rank r {
    for i in 0..microbatches {
      fwd(r, i);
      fwd(2 * ranks - 1 - r, i);
      bwd(2 * ranks - 1 - r, i);
      bwd(r, i);
    }
  }
}
// FOLDED: folded, 3 ranks, 6 stages, 1 microbatch
// FOLDED-NEXT: step 18, bubble 12: 66.67% of the step
// NINE: --schedule:1:1: error: folded runs two stages on each rank
// NINE: chain.pp:{{.*}}: note: required here: stages = 9, ranks = 3
// NINE-NOT: no multiple

schedule needy(ranks, stages, microbatches) {
  require ranks == 2, "needy wants two ranks";
  rank r { for i in 0..microbatches { fwd(r, i); bwd(r, i); } }
}
// NEEDY: --schedule:1:1: error: needy wants two ranks
// NEEDY: --schedule:1:1: note: this is for 3 stages; no multiple of 3 up to 48 does better (--stages=N)

schedule cycle(ranks, stages, microbatches) {
  rank r {
    if r == 0 { for i in 0..microbatches { fwd(0, i); bwd(0, i); } }
    else { for i in reverse(0..microbatches) { fwd(1, i); } for i in 0..microbatches { bwd(1, i); } }
  }
}
// CYCLE: chain.pp:[[#@LINE-4]]:55: error: this schedule can't finish: rank 0 waits in bwd(0, 0) for the gradient of bwd(1, 0), which stands behind an action that waits
// CYCLE: chain.pp:[[#@LINE-4]]:48: note: rank 1 waits in fwd(1, 2) for the activation of fwd(0, 2), which stands behind an action that waits
// CYCLE-NOT: rank

schedule dependent(ranks, stages, microbatches) {
  rank r { for i in 0..microbatches { if r == 1 { overlap { fwd(1, i); bwd(1, i); } } else { fwd(0, i); bwd(0, i); } } }
}
// DEPENDENT: error: this schedule can't finish: rank 1 waits in bwd(1, 0) for the stash of fwd(1, 0), which stands in the same overlap block

schedule short(ranks, stages, microbatches) { rank r { for i in 0..2 { fwd(r, i); bwd(r, i); } } }
// SHORT: --schedule:1:1: error: rank 0 never runs fwd(0, 2): microbatch 2 of stage 0 is missing
// SHORT: chain.pp:[[#@LINE-2]]:72: note: rank 0 runs stage 0 here

schedule absent(ranks, stages, microbatches) { rank r { fwd(r, 0); bwd(r, 0); } }
// ABSENT: --schedule:1:1: error: no rank runs stage 1, nor 1 other stage
// ABSENT: note: it was asked for 3 stages and runs 1 of them (--stages=N asks for others)

schedule outside(ranks, stages, microbatches) { rank r { fwd(r, microbatches); } }
// OUTSIDE: chain.pp:[[#@LINE-1]]:65: error: microbatch 3 is out of range: there are 3, from 0

schedule endless(ranks, stages, microbatches) { rank r { while true { let x = 1; } } }
// ENDLESS: chain.pp:[[#@LINE-1]]:79: error: this program does not end within 1000000000 evaluation steps
