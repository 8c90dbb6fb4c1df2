// Shapes that do not fit: the error stands where the user's line or the library's operation is, the
// notes show what declared the shape and how it came to the call.
//
// RUN: ! %ppc check %s 2>%t
// RUN: %FileCheck <%t
use nn; use optim; use schedules;

module block(d) {
  ln: layer_norm(d);
  fc: conv1d(d, 4 * d);
  fn (x: [.., d]) {
    let y = ln(x[.., 0..d - 1]);
    return x + fc(x);
  }
}

module net(d, layers) {
  h[layers]: block(d);
  fn (x: [b, d]) {
    for i in 0..layers { x = h[i](x); }
    let after = x @ x;  // of a wrong value: nothing to say
    let y = wrong(iota(d));
    return mean(x);
  }
  fn wrong(i: i32[d]) {
    let narrow = reshape(i, [3, -1]);
    let mixed = i * 0.5;
    let product = i @ i;
  }
}

train {
  model     net = net(8, 3);
  batch     microbatch = 4, microbatches = 2;
  data      x = synthetic(8);
  loss      net(x);
  ranks     1;
  schedule  gpipe;
  optimizer sgd(lr = constant(0.1));
  steps     1;
}

// CHECK: shapes.pp:12:16: error: 'x' is f32[4, 7], but axis 1 must be d = 8
// CHECK-NEXT: let y = ln(x[.., 0..d - 1]);
// CHECK-NEXT:            ^
// CHECK-NEXT: <library>/nn.pp:{{.*}}: note: the shape is declared here
// CHECK: shapes.pp:20:31: note: in the call of 'block' here
// CHECK: shapes.pp:13:14: error: f32[4, 8] and f32[4, 32] do not broadcast: axis -1 differs
// CHECK-NOT: error: f32[4, 8] and f32[4, 32]
// CHECK-NOT: shapes.pp:21
// CHECK: shapes.pp:26:18: error: i32[8] with its 8 elements can't have the shape [3, -1]
// CHECK: shapes.pp:22:13: note: in the call of 'wrong' here
// CHECK: shapes.pp:27:19: error: the float 0.5 meets an i32 tensor
// CHECK: shapes.pp:28:21: error: '@' works on two float tensors of one dtype, not on i32[8] and i32[8]
