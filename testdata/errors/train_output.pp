// Outputs of one name; ways to reduce.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
use nn; use optim; use schedules;

module net(d) {
  param w: [d] = ones;
  fn (x: [b, d]) {
    output a = mean(x);
    output a = sum(x);
    output e = mean("a");
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

// CHECK: train_output.pp:10:12: error: there are two outputs 'a'
// CHECK: train_output.pp:20:13: note: the first is made by the call here
// CHECK: train_output.pp:20:13: note: in the call of 'net' here
// CHECK: train_output.pp:11:21: error: an output is a tensor or a number, not a string
// CHECK: train_output.pp:20:13: note: in the call of 'net' here
