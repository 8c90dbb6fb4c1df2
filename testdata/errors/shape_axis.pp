// Axes count from 0, or from the end with -1.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
use nn; use optim; use schedules;

module net(d) {
  param w: [d] = ones;
  fn (x: [b, d]) {
    let y = sum(x, axis = 2);
    let z = mean(x, axis = -3);
    let q = max(x, axis = [0, 0]);
    let r = sum(x, axis = 0.5);
    let s = transpose(random([3]));
    let t = permute(x, [0]);
    let u = permute(x, [0, 0]);
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

// CHECK: shape_axis.pp:9:20: error: axis 2 of a tensor with 2 axes
// CHECK: shape_axis.pp:24:13: note: in the call of 'net' here
// CHECK: shape_axis.pp:10:21: error: axis -3 of a tensor with 2 axes
// CHECK: shape_axis.pp:24:13: note: in the call of 'net' here
// CHECK: shape_axis.pp:11:20: error: axis 0 stands twice
// CHECK: shape_axis.pp:24:13: note: in the call of 'net' here
// CHECK: shape_axis.pp:12:20: error: an axis is an int, not the float 0.5
// CHECK: shape_axis.pp:24:13: note: in the call of 'net' here
// CHECK: shape_axis.pp:13:23: error: 'transpose' swaps the last two axes: f32[3] has fewer
// CHECK: shape_axis.pp:24:13: note: in the call of 'net' here
// CHECK: shape_axis.pp:14:24: error: 'permute' needs the 2 axes of f32[4, 8] in their new order, as a list
// CHECK: shape_axis.pp:24:13: note: in the call of 'net' here
// CHECK: shape_axis.pp:15:24: error: axis 0 stands twice
// CHECK: shape_axis.pp:24:13: note: in the call of 'net' here
