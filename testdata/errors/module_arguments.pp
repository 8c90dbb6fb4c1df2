// Missing, unknown and repeated arguments of a module.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
use nn; use optim; use schedules;

module net(d) {
  a: linear(d);
  c: linear(d, d, stdd = 0.1);
  e: linear(d, d, n_in = d);
  f: linear(d, d, true, 0.1, 5);
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

// CHECK: module_arguments.pp:7:6: error: module 'linear' needs argument 'n_out'
// CHECK: <library>/nn.pp:{{.*}}: note: it is declared here
// CHECK: module_arguments.pp:15:19: note: in the call of 'net' here
// CHECK: module_arguments.pp:8:19: error: module 'linear' has no argument 'stdd'
// CHECK: <library>/nn.pp:{{.*}}: note: did you mean 'std'?
// CHECK: module_arguments.pp:15:19: note: in the call of 'net' here
// CHECK: module_arguments.pp:9:19: error: argument 'n_in' is given twice
// CHECK: module_arguments.pp:15:19: note: in the call of 'net' here
// CHECK: module_arguments.pp:10:30: error: module 'linear' takes 4 arguments, here are 5
// CHECK: <library>/nn.pp:{{.*}}: note: it is declared here
// CHECK: module_arguments.pp:15:19: note: in the call of 'net' here
