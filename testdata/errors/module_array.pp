// Members of an array come one after the other.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
use nn; use optim; use schedules;

module net(d) {
  for i in 1..3 { h[i]: linear(d, d); }
  for i in 0..2 { g[0]: linear(d, d); }
  fn (x: [b, d]) { return mean(h[0](x)); }
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

// CHECK: module_array.pp:7:21: error: element 1 of 'h' can't be made here: the next one is 0
// CHECK: module_array.pp:13:19: note: in the call of 'net' here
// CHECK: module_array.pp:8:21: error: element 0 of 'g' can't be made here: the next one is 1
// CHECK: module_array.pp:13:19: note: in the call of 'net' here
