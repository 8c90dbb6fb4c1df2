// A module without the function that is called.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
use nn; use optim; use schedules;

module inner(d) {
  param w: [d] = ones;
  fn apply(x) { return x * w; }
}
module net(d) {
  a: inner(d);
  fn (x: [b, d]) { return mean(a(x)); }
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

// CHECK: module_function.pp:12:32: error: module 'inner' has no function without a name
// CHECK: module_function.pp:6:8: note: it is declared here
// CHECK: module_function.pp:19:13: note: in the call of 'net' here
