// A module inside itself.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
use nn; use optim; use schedules;

module net(d) {
  inner: net(d);
  fn (x: [b, d]) { return mean(x); }
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

// CHECK: module_endless.pp:7:10: error: calls are nested more than 1000 deep here
// CHECK: module_endless.pp:12:19: note: in the call of 'net' here
