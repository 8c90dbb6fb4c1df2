// Fewer microbatches than ranks, and numbers of them that the ranks don't divide: accepted, proved, and the
// bits of one rank.
//
// RUN: for m in 1 2 4 7; do %ppc check %s --ranks=8 --microbatches=$m >check.txt && grep -q 'progress: proved' check.txt || exit 1; done
// RUN: %ppc check %s --ranks=8 --microbatches=1 --schedule=gpipe >check.txt && grep 'progress: proved' check.txt
// RUN: for m in 1 3 10; do %ppc check %s --ranks=4 --microbatches=$m --schedule='interleaved_1f1b(chunks = 2)' >check.txt && grep -q 'progress: proved' check.txt || exit 1; done
// RUN: for m in 1 3; do %ppc run %s -D layers=4 --microbatches=$m --ranks=1 --json >$m.base.json || exit 1; done
// RUN: for m in 1 3; do %ppc run %s -D layers=4 --microbatches=$m --ranks=4 --json >$m.1f1b.json || exit 1; done
// RUN: %ppc run %s -D layers=4 --microbatches=1 --ranks=2 --schedule='interleaved_1f1b(chunks = 2)' --json >1.interleaved.json
// RUN: for m in 1 3; do python3 %root/testdata/compare.py same $m.*.json || exit 1; done
use nn; use optim; use schedules;

const layers = 8;

module net(d) {
  h[layers]: linear(d, d, std = 0.3);
  fn (x: [b, d]) {
    let y = x;
    for i in 0..layers {
      y = y + gelu(h[i](y));
      if i + 1 < layers { stage_end; }
    }
    return mean_squared_error(y, 0.5 * x);
  }
}

train {
  model     net = net(8);
  batch     microbatch = 2, microbatches = 4;
  data      x = synthetic(8);
  loss      net(x);
  ranks     8;
  schedule  one_f_one_b;
  optimizer sgd(lr = 0.1);
  steps     2;
}
