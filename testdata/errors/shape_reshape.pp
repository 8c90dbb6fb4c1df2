// The number of elements stays.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
use nn; use optim; use schedules;

module net(d) {
  param w: [d] = ones;
  fn (x: [b, d]) {
    let y = reshape(x, [3, 5]);
    let z = reshape(x, [-1, -1]);
    let q = reshape(x, [0, -1]);
    let r = reshape(x, [-2, 16]);
    let s = reshape(x, x);
    let t = reshape(x, [4, 2.0, 4]);
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

// CHECK: shape_reshape.pp:9:13: error: f32[4, 8] with its 32 elements can't have the shape [3, 5]
// CHECK: shape_reshape.pp:23:13: note: in the call of 'net' here
// CHECK: shape_reshape.pp:10:24: error: a shape can leave one size open with -1, not 2
// CHECK: shape_reshape.pp:23:13: note: in the call of 'net' here
// CHECK: shape_reshape.pp:11:13: error: f32[4, 8] with its 32 elements can't have the shape [0, -1]
// CHECK: shape_reshape.pp:23:13: note: in the call of 'net' here
// CHECK: shape_reshape.pp:12:24: error: axis 0 of this tensor would have size -2
// CHECK: shape_reshape.pp:23:13: note: in the call of 'net' here
// CHECK: shape_reshape.pp:13:24: error: a shape is a list of ints, not the tensor f32[4, 8]
// CHECK: shape_reshape.pp:23:13: note: in the call of 'net' here
// CHECK: shape_reshape.pp:14:24: error: a shape is a list of ints: element 1 is the float 2.0
// CHECK: shape_reshape.pp:23:13: note: in the call of 'net' here
