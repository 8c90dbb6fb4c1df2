// An update keeps shape and type.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
use nn; use optim; use schedules;

optimizer mine() {
  fn (p, g, step) { return sum(p); }
}

module net(d) {
  param w: [d] = ones;
  fn (x: [b, d]) { return mean(x * w); }
}

train {
  model     net = net(8);
  batch     microbatch = 4, microbatches = 2;
  data      x = synthetic(8);
  loss      net(x);
  ranks     1;
  schedule  gpipe;
  optimizer mine();
  steps     1;
}

// CHECK: optimizer_shape.pp:7:21: error: the parameter's new value must be f32[8], but this is f32
// CHECK: optimizer_shape.pp:22:13: note: in the call of 'mine' here
