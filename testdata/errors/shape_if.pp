// A tensor is known only at run time.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
use nn; use optim; use schedules;

module net(d) {
  param w: [d] = ones;
  fn (x: [b, d]) {
    if mean(x) > 0.0 { return mean(x); }
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

// CHECK: shape_if.pp:9:16: error: 'if' needs a bool at compile time, but this is known only at run time
// CHECK: shape_if.pp:9:16: note: select(c, a, b) chooses at run time
// CHECK: shape_if.pp:18:13: note: in the call of 'net' here
