// No stage ends inside it.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
use nn; use optim; use schedules;

fn f(x) {
  stage_end;
  return x;
} derivative (y, dy) { return dy; }

module net(d) {
  param w: [d] = ones;
  fn (x: [b, d]) {
    let y = f(x);
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

// CHECK: derivative_stage.pp:7:3: error: a stage can't end in a function that states its derivative
// CHECK: derivative_stage.pp:14:13: note: in the call of 'f' here
// CHECK: derivative_stage.pp:23:13: note: in the call of 'net' here
