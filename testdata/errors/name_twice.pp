// One block declares a name once.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
use nn; use optim; use schedules;

module net(d) {
  param w: [d] = ones;
  fn (x: [b, d]) {
    let y = x;
    let y = x * 2.0;
    if true { let y = 1; }
    fn y() { return 1; }
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

// CHECK: name_twice.pp:10:9: error: 'y' is declared twice in this block
// CHECK: name_twice.pp:9:9: note: it is declared here first
// CHECK: name_twice.pp:12:8: error: 'y' is declared twice in this block
// CHECK: name_twice.pp:9:9: note: it is declared here first
