// Endless recursion ends.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
use nn; use optim; use schedules;

fn f(n) { return g(n + 1); }
fn g(n) { return f(n - 1); }

module net(d) {
  param w: [d] = ones;
  fn (x: [b, d]) {
    let n = f(1);
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

// CHECK: budget_recursion.pp:6:18: error: calls are nested more than 1000 deep here
// CHECK: budget_recursion.pp:7:18: note: in the call of 'f' here
// CHECK: budget_recursion.pp:12:13: note: in the call of 'f' here
