// An endless list ends.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
use nn; use optim; use schedules;

module net(d) {
  param w: [d] = ones;
  fn (x: [b, d]) {
    let l = [1, 2, 3, 4];
    while true { for y in copy(l) { append(l, y); } }
    return mean(x * w);
  }
}

train {
  model     net = net(8);
  batch     microbatch = 4, microbatches = 2;
  data      x = synthetic(8);
  loss      net(x);
  ranks     1;
  schedule  gpipe;
  optimizer sgd(lr = constant(0.1));
  steps     1;
}

// CHECK: budget_memory.pp:10:18: error: this program needs too much memory: its lists and variables passed 1024 MiB
// CHECK: budget_memory.pp:19:13: note: in the call of 'net' here
