// Transfers that hung elsewhere: a value that skips stages, opposite transfers in the steady state of 1F1B, interleaving on 2 and 4 ranks,
// more than 256 transfers in a step, a late send behind receives that were posted early. All accepted and proved under every schedule of
// the library that the numbers allow; run on the strictest transport with the bits of one rank.
//
// RUN: for s in $(sed -n 's/^schedule \([a-z0-9_]*\)(.*/\1/p' %root/dsl/lib/schedules.pp); do n=0; for o in '-D stages=4 --ranks=4 --microbatches=8' '-D stages=4 --ranks=2 --microbatches=4' '-D stages=8 --ranks=4 --microbatches=8'; do %ppc check %s $o --schedule=$s >out 2>err || { grep -q 'note: required here' err && continue; cat err; exit 1; }; grep -q 'progress: proved' out || exit 1; n=$((n + 1)); done; test $n -gt 0 || { echo $s; cat err; exit 1; }; done
// RUN: for m in 2 4; do %ppc check %s --ranks=2 --microbatches=$m --schedule='interleaved_1f1b(chunks = 2)' >out && grep -q 'progress: proved' out || exit 1; done
// RUN: %ppc check %s -D stages=8 --ranks=4 --microbatches=4 --schedule='interleaved_1f1b(chunks = 2)' >out && grep -q 'progress: proved' out
// RUN: %ppc check %s --microbatches=64 >out && grep -q 'progress: proved' out && test $(%ppc dump %s --microbatches=64 --after=transfers --pretty | grep -c 'made by action') -gt 256
// RUN: %ppc run %s --ranks=1 --json >1.json; for r in 2 4; do for t in strict:5 strict:6:2; do %ppc run %s --ranks=$r --transport=$t --timeout=60 --json >$r.$t.json || exit 1; done; done; python3 %root/testdata/compare.py same 1.json 2.*.json 4.*.json
use nn; use optim; use schedules;

const stages = 4;

// Stage 0 feeds stages 1, 2 and the last; stage 1 feeds stage 3.
module net(d, stages) {
  h[stages]: linear(d, d, std = 0.3);
  fn (sample: [b, d]) {
    let x0 = h[0](sample);
    stage_end;
    let x1 = gelu(h[1](x0));
    stage_end;
    let y = h[2](x1 + x0);
    for i in 3..stages {
      stage_end;
      y = y + gelu(h[i](y)) + (i == 3 ? x1 : y);
    }
    return mean_squared_error(y + x0, 0.5 * sample);
  }
}

train {
  model     net = net(8, stages);
  batch     microbatch = 2, microbatches = 4;
  data      x = synthetic(8);
  loss      net(x);
  ranks     4;
  schedule  one_f_one_b;
  optimizer sgd(lr = 0.1);
  steps     2;
}
