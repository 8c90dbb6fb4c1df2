// Conditions are bools.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
use nn; use optim; use schedules;

module net(d) {
  param w: [d] = ones;
  fn (x: [b, d]) {
    let a = 1 ? 2 : 3;
    let c = 1.5..3;
    if "a" { }
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

// CHECK: value_condition.pp:9:13: error: '? :' needs a bool, not the int 1
// CHECK: value_condition.pp:20:13: note: in the call of 'net' here
