// Tensors are bounded.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
use nn; use optim; use schedules;

module net(d) {
  param w: [d] = ones;
  fn (x: [b, d]) {
    let y = random([1048576, 1048576, 64]);
    let z = iota(-1);
    let q = random([0, 3]);
    let r = random([1, 1, 1, 1, 1, 1, 1, 1, 1, 1]);
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

// CHECK: shape_size.pp:9:20: error: this tensor is too large: more than 2^42 elements
// CHECK: shape_size.pp:21:13: note: in the call of 'net' here
// CHECK: shape_size.pp:10:18: error: axis 0 of this tensor would have size -1
// CHECK: shape_size.pp:21:13: note: in the call of 'net' here
// CHECK: shape_size.pp:11:20: error: axis 0 of this tensor would have size 0
// CHECK: shape_size.pp:21:13: note: in the call of 'net' here
// CHECK: shape_size.pp:12:20: error: a tensor of 10 axes: 8 are the most
// CHECK: shape_size.pp:21:13: note: in the call of 'net' here
