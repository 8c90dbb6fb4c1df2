// An argument that does not fit its pattern.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
use nn; use optim; use schedules;

fn f(x: [a, b, c]) { return x; }
fn g(x: i32[a, b]) { return x; }
fn h(x: [a, 7]) { return x; }
fn k(x: [.., a], y: [.., a]) { return x + y; }
fn l(x: real[a]) { return x; }

module net(d) {
  param w: [d] = ones;
  fn (x: [b, d]) {
    let y = f(x);
    let z = g(x);
    let q = h(x);
    let r = f(3);
    let s = k(x, random([4, 7]));
    let t = l(iota(3));
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

// CHECK: shape_call.pp:15:15: error: 'x' is f32[4, 8], but it must have 3 axes
// CHECK: shape_call.pp:6:9: note: the shape is declared here
// CHECK: shape_call.pp:29:13: note: in the call of 'net' here
// CHECK: shape_call.pp:16:15: error: 'x' must be i32, but this is f32[4, 8]
// CHECK: shape_call.pp:7:9: note: the dtype is declared here
// CHECK: shape_call.pp:29:13: note: in the call of 'net' here
// CHECK: shape_call.pp:17:15: error: 'x' is f32[4, 8], but axis 1 must be 7
// CHECK: shape_call.pp:8:13: note: the shape is declared here
// CHECK: shape_call.pp:29:13: note: in the call of 'net' here
// CHECK: shape_call.pp:18:15: error: 'x' must be a tensor, not the int 3
// CHECK: shape_call.pp:6:6: note: it is declared here
// CHECK: shape_call.pp:29:13: note: in the call of 'net' here
// CHECK: shape_call.pp:19:18: error: 'y' is f32[4, 7], but axis 1 must be a = 8
// CHECK: shape_call.pp:9:26: note: the shape is declared here
// CHECK: shape_call.pp:29:13: note: in the call of 'net' here
// CHECK: shape_call.pp:20:15: error: 'x' must be f32, but this is i32[3]
// CHECK: shape_call.pp:10:9: note: the dtype is declared here
// CHECK: shape_call.pp:29:13: note: in the call of 'net' here
