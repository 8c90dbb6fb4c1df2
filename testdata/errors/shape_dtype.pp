// There are no implicit casts between tensors.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
use nn; use optim; use schedules;

module net(d) {
  param w: [d] = ones;
  fn (x: [b, d]) {
    let ids = iota(8);
    let y = x * ids;
    let z = ids + 0.5;
    let q = exp(ids);
    let r = (x > 0.0) + 1;
    let s = x and true;
    let t = ids @ ids;
    let u = cast(x, 3);
    let v = x + 9223372036854775807 * 1;
    let w2 = ids + 2147483648;
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

// CHECK: shape_dtype.pp:10:15: error: f32[4, 8] meets i32[8]: there are no implicit casts
// CHECK: shape_dtype.pp:10:15: note: cast(x, f32) converts
// CHECK: shape_dtype.pp:27:13: note: in the call of 'net' here
// CHECK: shape_dtype.pp:11:17: error: the float 0.5 meets an i32 tensor
// CHECK: shape_dtype.pp:11:17: note: cast(x, real) makes a float tensor of it
// CHECK: shape_dtype.pp:27:13: note: in the call of 'net' here
// CHECK: shape_dtype.pp:12:13: error: 'exp' works on floats, not on an i32 tensor
// CHECK: shape_dtype.pp:12:13: note: cast(x, real) makes a float tensor of it
// CHECK: shape_dtype.pp:27:13: note: in the call of 'net' here
// CHECK: shape_dtype.pp:13:23: error: the int 1 meets a bool tensor
// CHECK: shape_dtype.pp:27:13: note: in the call of 'net' here
// CHECK: shape_dtype.pp:14:15: error: 'and' works on bools, not on f32
// CHECK: shape_dtype.pp:27:13: note: in the call of 'net' here
// CHECK: shape_dtype.pp:15:17: error: '@' works on two float tensors of one dtype, not on i32[8] and i32[8]
// CHECK: shape_dtype.pp:27:13: note: in the call of 'net' here
// CHECK: shape_dtype.pp:16:21: error: 'cast' needs a dtype, not the int 3
// CHECK: shape_dtype.pp:27:13: note: in the call of 'net' here
// CHECK: shape_dtype.pp:18:18: error: 2147483648 does not fit in i32
// CHECK: shape_dtype.pp:27:13: note: in the call of 'net' here
