// Masks of dropout and initial values are functions of the source: of the path and the occurrence, the seed,
// the element. Neither the cut, nor the ranks, nor the schedule, nor another parameter changes them.
//
// RUN: %ppc run %s -D stages=1 --ranks=1 --json >1.json
// RUN: %ppc run %s -D stages=2 --ranks=2 --schedule=gpipe --json >2.json
// RUN: %ppc run %s -D stages=4 --ranks=4 --json >4.json
// RUN: python3 %root/testdata/compare.py same *.json
// RUN: %ppc run %s -D stages=4 --ranks=4 --steps=0 --save=4.st
// RUN: %ppc run %s -D stages=1 --ranks=1 --steps=0 --save=1.st
// RUN: cmp 1.st 4.st
// RUN: %ppc run %s -D stages=2 -D extra=true --ranks=2 --steps=0 --save=extra.st
// RUN: python3 %root/testdata/compare.py contained 1.st extra.st
// RUN: python3 %root/testdata/compare.py differ 1.st h.0.weight h.3.weight
use nn; use optim; use schedules;

const layers = 4;
const stages = 2;
const extra = false;

module net(d) {
  if extra { param added: [d] = normal(0.0, 1.0); }
  h[layers]: linear(d, d, std = 0.3);
  fn (x: [b, d]) {
    if extra { x = x + added; }
    let y = x;
    for i in 0..layers {
      y = dropout(gelu(h[i](y)), 0.5);
      if cut(i, layers, stages) { stage_end; }
    }
    return mean_squared_error(y, 0.5 * x);
  }
}

train {
  model     net = net(16);
  batch     microbatch = 4, microbatches = 4;
  data      x = synthetic(16);
  loss      net(x);
  ranks     2;
  schedule  one_f_one_b;
  optimizer adamw(lr = 0.01);
  steps     4;
  seed      7;
}
