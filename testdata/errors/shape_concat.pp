// Joined tensors differ in one axis.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
use nn; use optim; use schedules;

module net(d) {
  param w: [d] = ones;
  fn (x: [b, d]) {
    let y = concat([x, random([5, 9])]);
    let z = concat([]);
    let q = concat(x);
    let r = concat([x, iota(8)]);
    let s = pad(x, 0, -1, 2);
    let t = pad(x, 5, 1, 1);
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

// CHECK: shape_concat.pp:9:20: error: f32[4, 8] and f32[5, 9] can't be joined on axis 1
// CHECK: shape_concat.pp:23:13: note: in the call of 'net' here
// CHECK: shape_concat.pp:10:20: error: 'concat' joins a list of tensors: concat([a, b], axis = -1)
// CHECK: shape_concat.pp:23:13: note: in the call of 'net' here
// CHECK: shape_concat.pp:11:20: error: 'concat' joins a list of tensors: concat([a, b], axis = -1)
// CHECK: shape_concat.pp:23:13: note: in the call of 'net' here
// CHECK: shape_concat.pp:12:20: error: f32[4, 8] and i32[8] can't be joined on axis 1
// CHECK: shape_concat.pp:23:13: note: in the call of 'net' here
// CHECK: shape_concat.pp:13:23: error: 'pad' can't add -1 elements
// CHECK: shape_concat.pp:23:13: note: in the call of 'net' here
// CHECK: shape_concat.pp:14:20: error: axis 5 of a tensor with 2 axes
// CHECK: shape_concat.pp:23:13: note: in the call of 'net' here
