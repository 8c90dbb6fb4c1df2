// An update reads no data and no random numbers.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
use nn; use optim; use schedules;

optimizer mine() {
  fn (p, g, step) { return p + random(shape(p)); }
}

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

// CHECK: optimizer_random.pp:7:32: error: 'random' can't stand here: only the loss has random numbers
// CHECK: optimizer_random.pp:22:13: note: in the call of 'mine' here
