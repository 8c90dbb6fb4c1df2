// An optimizer without a function.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
use nn; use optim; use schedules;

optimizer mine() { state m = zeros; }

module net(d) {
  param w: [d] = ones;
  fn (x: [b, d]) { return mean(x * w); }
}

train {
  model     net = net(8);
  batch     microbatch = 4, microbatches = 2;
  data      x = synthetic(8);
  loss      net(x);
  ranks     1;
  schedule  gpipe;
  optimizer mine();
  steps     1;
}

// CHECK: optimizer_none.pp:6:11: error: optimizer 'mine' has no 'fn (p, g, step)'
