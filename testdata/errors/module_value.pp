// What a member and a parameter are made from.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
use nn; use optim; use schedules;

fn plain(x) { return x; }
module net(d) {
  a: plain(d);
  h[-1]: linear(d, d);
  param p: [d] = 3;
  param q: [d, 0] = ones;
  param r: [.., d] = ones;
  param s: [d] = normal(0.0, -1.0);
  param t: [d] = uniform(1.0, 0.0);
  param u: i32[d] = zeros;
  fn (x: [b, d]) { return mean(x * p); }
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

// CHECK: module_value.pp:8:6: error: a member is an instance of a module, but this is a function
// CHECK: module_value.pp:20:19: note: in the call of 'net' here
// CHECK: module_value.pp:9:5: error: an array of -1 modules
// CHECK: module_value.pp:20:19: note: in the call of 'net' here
// CHECK: module_value.pp:10:18: error: the int 3 is no initial value
// CHECK: module_value.pp:10:18: note: zeros, ones, normal(mean, std) and uniform(a, b) are
// CHECK: module_value.pp:20:19: note: in the call of 'net' here
// CHECK: module_value.pp:11:12: error: axis 1 of this tensor would have size 0
// CHECK: module_value.pp:20:19: note: in the call of 'net' here
// CHECK: module_value.pp:12:13: error: '..' can't stand here: sizes must be known
// CHECK: module_value.pp:20:19: note: in the call of 'net' here
// CHECK: module_value.pp:13:30: error: a standard deviation can't be negative
// CHECK: module_value.pp:20:19: note: in the call of 'net' here
// CHECK: module_value.pp:14:31: error: uniform(a, b) needs a <= b
// CHECK: module_value.pp:20:19: note: in the call of 'net' here
// CHECK: module_value.pp:15:12: error: a parameter is f32 or f64, not i32
// CHECK: module_value.pp:20:19: note: in the call of 'net' here
