// A derivative names each result and its adjoint.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
use nn; use optim; use schedules;

fn f(x) { return x, x; } derivative (y, dy) {
  return dy;
}

module net(d) {
  param w: [d] = ones;
  fn (x: [b, d]) {
    let a, c = f(x);
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

// CHECK: derivative_names.pp:6:26: error: the function has 2 results: a derivative names them and their adjoints, here are 2 names
// CHECK: derivative_names.pp:13:16: note: in the call of 'f' here
// CHECK: derivative_names.pp:22:13: note: in the call of 'net' here
