// An adjoint has its argument's shape and type.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
use nn; use optim; use schedules;

fn f(x) { return x * 2.0; } derivative (y, dy) {
  return sum(dy, axis = 0);
}
fn g(x) { return x * 2.0; } derivative (y, dy) {
  return dy > 0.0;
}
fn h(x) { return x * 2.0; } derivative (y, dy) {
  return 3.0;
}

module net(d) {
  param w: [d] = ones;
  fn (x: [b, d]) {
    let y = f(x);
    let z = g(x);
    let q = h(x);
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

// CHECK: derivative_shape.pp:7:3: error: the adjoint of 'x' must be f32[4, 8], but this is f32[8]
// CHECK: derivative_shape.pp:19:13: note: in the call of 'f' here
// CHECK: derivative_shape.pp:30:13: note: in the call of 'net' here
// CHECK: derivative_shape.pp:10:3: error: the adjoint of 'x' must be f32[4, 8], but this is bool[4, 8]
// CHECK: derivative_shape.pp:20:13: note: in the call of 'g' here
// CHECK: derivative_shape.pp:30:13: note: in the call of 'net' here
