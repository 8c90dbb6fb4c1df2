// A member may not have the name of an argument, nor of another member.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
use nn; use optim; use schedules;

module net(d, w) {
  param w: [d] = ones;
  param v: [d] = ones;
  v: linear(d, d);
  fn (x: [b, d]) { return mean(x * v); }
}

train {
  model     net = net(8, 1);
  batch     microbatch = 4, microbatches = 2;
  data      x = synthetic(8);
  loss      net(x);
  ranks     1;
  schedule  gpipe;
  optimizer sgd(lr = constant(0.1));
  steps     1;
}

// CHECK: module_name.pp:7:9: error: 'w' is already an argument of the module
// CHECK: module_name.pp:6:15: note: it is declared here first
// CHECK: module_name.pp:9:3: error: 'v' is declared twice in this block
// CHECK: module_name.pp:8:9: note: it is declared here first
