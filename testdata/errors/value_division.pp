// Ints divide exactly or not at all.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
use nn; use optim; use schedules;

module net(d) {
  param w: [d] = ones;
  fn (x: [b, d]) {
    let a = 7 / 2;
    let c = 1 / 0;
    let e = mod(1, 0);
    let f = div(1.5, 2);
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

// CHECK: value_division.pp:9:15: error: 7 / 2 is not exact
// CHECK: value_division.pp:9:15: note: div(a, b) rounds down; 7.0 / 2 is a float
// CHECK: value_division.pp:21:13: note: in the call of 'net' here
// CHECK: value_division.pp:10:15: error: division by zero
// CHECK: value_division.pp:21:13: note: in the call of 'net' here
// CHECK: value_division.pp:11:13: error: division by zero
// CHECK: value_division.pp:21:13: note: in the call of 'net' here
// CHECK: value_division.pp:12:13: error: 'div' works on ints, not on the float 1.5
// CHECK: value_division.pp:21:13: note: in the call of 'net' here
