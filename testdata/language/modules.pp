// RUN: %ppc dump %s --after=elaborate > %t
// RUN: %FileCheck < %t
// Members and params in `if` and `for`, arrays of members, several functions; the names that result.
//
// CHECK-DAG: "first.weight"
// CHECK-DAG: "first.bias"
// CHECK-DAG: "blocks.0.up.weight"
// CHECK-DAG: "blocks.2.up.weight"
// CHECK-DAG: "blocks.2.gate.weight"
// CHECK-DAG: "scale"
use nn; use optim; use schedules;

module block(d, i) {
  up: linear(d, d, with_bias = false);
  if i == 2 {
    gate: linear(d, d, with_bias = false);
  }
  fn (x: [.., d]) {
    if i == 2 { return up(x) * gate(x); }
    return up(x);
  }
}

module net(layers, d) {
  let wide = 2 * d;
  require layers > 0, "a net has layers";
  first: linear(d, wide);
  for i in 0..layers {
    blocks[i]: block(wide, i);
  }
  param scale: [wide] = uniform(-1.0, 1.0);
  output: linear(wide, 1, with_bias = false);
  fn (x: [b, d]) {
    let y = output(features(x));
    return mean(y * y);
  }
  fn features(x) {
    let y = first(x);
    for i in 0..layers { y = blocks[i](y); }
    output size = mean(y);
    return y * scale;
  }
}

train {
  model     net = net(layers = 3, d = 4);
  batch     microbatch = 2, microbatches = 2;
  data      x = synthetic(4);
  loss      net(x);
  ranks     1;
  schedule  gpipe;
  optimizer sgd(lr = constant(0.1));
  steps     1;
}
