// An optimizer has a function of three.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
use nn; use optim; use schedules;

optimizer mine() {
  fn (p, g) { return p - g; }
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

// CHECK: optimizer_function.pp:22:13: error: this function takes 2 arguments, here are 3
// CHECK: optimizer_function.pp:7:3: note: it is declared here
