// A loop runs over a range or a list.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
use nn; use optim; use schedules;

module net(d) {
  param w: [d] = ones;
  fn (x: [b, d]) {
    for i in 3 { }
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

// CHECK: value_loop.pp:9:14: error: 'for' goes over a range or a list, not the int 3
// CHECK: value_loop.pp:9:14: note: a range is 0..3
// CHECK: value_loop.pp:18:13: note: in the call of 'net' here
