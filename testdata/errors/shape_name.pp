// A name in a shape is a size.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
use nn; use optim; use schedules;

fn f(x, n) {
  let r = reshape(x, [n, -1]);
  return r;
}

module net(d) {
  param w: [d] = ones;
  fn (x: [b, d]) {
    let y = f(x, 3);
    let z = f(x, "a");
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

// CHECK: shape_name.pp:7:11: error: f32[4, 8] with its 32 elements can't have the shape [3, -1]
// CHECK: shape_name.pp:14:13: note: in the call of 'f' here
// CHECK: shape_name.pp:24:13: note: in the call of 'net' here
// CHECK: shape_name.pp:7:22: error: a shape is a list of ints: element 0 is a string
// CHECK: shape_name.pp:15:13: note: in the call of 'f' here
// CHECK: shape_name.pp:24:13: note: in the call of 'net' here
