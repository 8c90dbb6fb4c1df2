// One name, two sizes.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
use nn; use optim; use schedules;

fn f(x: [a, a]) { return x; }

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

// CHECK: shape_twice.pp:11:15: error: 'x' is f32[4, 8], but axis 1 must be a = 4
// CHECK: shape_twice.pp:6:13: note: the shape is declared here
// CHECK: shape_twice.pp:20:13: note: in the call of 'net' here
