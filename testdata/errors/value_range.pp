// A list has bounds.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
use nn; use optim; use schedules;

module net(d) {
  param w: [d] = ones;
  fn (x: [b, d]) {
    let l = 0..9223372036854775807;
    require 3, "three";
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

// CHECK: value_range.pp:9:14: error: this range is too long for a list
// CHECK: value_range.pp:19:13: note: in the call of 'net' here
// CHECK: value_range.pp:10:13: error: 'require' needs a bool, not the int 3
// CHECK: value_range.pp:19:13: note: in the call of 'net' here
