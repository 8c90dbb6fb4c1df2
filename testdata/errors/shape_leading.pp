// A second `..` equals the first.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
use nn; use optim; use schedules;

fn f(x: [.., a], y: [.., a]) { return x + y; }

module net(d) {
  param w: [d] = ones;
  fn (x: [b, d]) {
    let y = f(x, random([5, 8]));
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

// CHECK: shape_leading.pp:11:18: error: 'y' is f32[5, 8], but its leading axes must be [4]
// CHECK: shape_leading.pp:6:10: note: '..' was bound here
// CHECK: shape_leading.pp:20:13: note: in the call of 'net' here
