// Bounds are checked, not clamped.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
use nn; use optim; use schedules;

module net(d) {
  param w: [d] = ones;
  fn (x: [b, d]) {
    let y = x[.., 0..9];
    let z = x[4];
    let q = x[.., 5..3];
    let r = x[0, 0, 0];
    let s = x[.., x];
    let t = x[.., 0.5];
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

// CHECK: shape_slice.pp:9:20: error: 0..9 is not within axis 1 of f32[4, 8]
// CHECK: shape_slice.pp:23:13: note: in the call of 'net' here
// CHECK: shape_slice.pp:10:15: error: index 4 is not within axis 0 of f32[4, 8]
// CHECK: shape_slice.pp:23:13: note: in the call of 'net' here
// CHECK: shape_slice.pp:11:20: error: 5..3 is empty: axis 1 of f32[4, 8] would vanish
// CHECK: shape_slice.pp:23:13: note: in the call of 'net' here
// CHECK: shape_slice.pp:12:14: error: more indices than f32[4, 8] has axes
// CHECK: shape_slice.pp:23:13: note: in the call of 'net' here
// CHECK: shape_slice.pp:13:19: error: a tensor can't be an index
// CHECK: shape_slice.pp:13:19: note: gather(table, i) takes rows by a tensor of i32
// CHECK: shape_slice.pp:23:13: note: in the call of 'net' here
// CHECK: shape_slice.pp:14:19: error: an index is an int or a range, not the float 0.5
// CHECK: shape_slice.pp:23:13: note: in the call of 'net' here
