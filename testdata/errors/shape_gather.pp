// Rows are chosen by ints.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
use nn; use optim; use schedules;

module net(d) {
  param w: [d] = ones;
  fn (x: [b, d]) {
    let y = gather(x, x);
    let z = gather(3, iota(2));
    let q = gather(iota(3), iota(2));
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

// CHECK: shape_gather.pp:9:23: error: 'gather' takes rows by an i32 tensor, not by f32[4, 8]
// CHECK: shape_gather.pp:20:13: note: in the call of 'net' here
// CHECK: shape_gather.pp:10:20: error: 'gather' needs a tensor, not the int 3
// CHECK: shape_gather.pp:20:13: note: in the call of 'net' here
