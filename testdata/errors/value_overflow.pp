// 64 bits.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
use nn; use optim; use schedules;

module net(d) {
  param w: [d] = ones;
  fn (x: [b, d]) {
    let a = 9223372036854775807 + 1;
    let c = 4611686018427387904 * 2;
    let e = -9223372036854775807 - 2;
    let f = pow(10, 19);
    let g = pow(2, -1);
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

// CHECK: value_overflow.pp:9:33: error: 9223372036854775807 + 1 does not fit in 64 bits
// CHECK: value_overflow.pp:22:13: note: in the call of 'net' here
// CHECK: value_overflow.pp:10:33: error: 4611686018427387904 * 2 does not fit in 64 bits
// CHECK: value_overflow.pp:22:13: note: in the call of 'net' here
// CHECK: value_overflow.pp:11:34: error: -9223372036854775807 - 2 does not fit in 64 bits
// CHECK: value_overflow.pp:22:13: note: in the call of 'net' here
// CHECK: value_overflow.pp:12:13: error: this power does not fit in 64 bits
// CHECK: value_overflow.pp:22:13: note: in the call of 'net' here
