// select takes a bool tensor.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
use nn; use optim; use schedules;

module net(d) {
  param w: [d] = ones;
  fn (x: [b, d]) {
    let y = select(x, x, x);
    let z = select(1, 2, 3);
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

// CHECK: shape_select.pp:9:13: error: 'select' chooses by a bool tensor, not by the tensor f32[4, 8]
// CHECK: shape_select.pp:19:13: note: in the call of 'net' here
// CHECK: shape_select.pp:10:13: error: 'select' chooses by a bool tensor, not by the int 1
// CHECK: shape_select.pp:19:13: note: in the call of 'net' here
