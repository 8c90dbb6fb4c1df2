// A function with a stated derivative uses no tensor but its arguments.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
use nn; use optim; use schedules;

module net(d) {
  param w: [d] = ones;
  fn weigh(z) { return z * w; } derivative (y, dy) { return dy * w; }
  fn (x: [b, d]) {
    let outer = 2.0 * x;
    fn f(z) { return z * outer; } derivative (y, dy) { return dy * outer; }
    let y = f(x);
    let q = weigh(x);
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

// CHECK: derivative_outside.pp:11:24: error: a function that states its derivative uses no tensor but its arguments: pass this one to it
// CHECK: derivative_outside.pp:12:13: note: in the call of 'f' here
// CHECK: derivative_outside.pp:22:13: note: in the call of 'net' here
// CHECK: derivative_outside.pp:8:28: error: a function that states its derivative uses no tensor but its arguments: pass 'w' to it
// CHECK: derivative_outside.pp:13:13: note: in the call of 'weigh' here
// CHECK: derivative_outside.pp:22:13: note: in the call of 'net' here
