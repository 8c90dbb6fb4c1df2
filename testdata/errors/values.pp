// Compile-time errors, each reported once and at its own place.
//
// RUN: ! %ppc check %s 2>%t
// RUN: %FileCheck <%t
use nn; use optim; use schedules;

const layers = 3;
const circle = square + 1;
const square = circle * 2;

module net(d) {
  wte: embedding(d, d);
  param w: [d] = normal(0.0, -1.0);
  h[layers]: linear(d, d, with_bais = true);
  fn (x: [b, d]) {
    let third = d / layers;
    let huge = 9223372036854775807 + d;
    let element = [1, 2][layers];
    let both = "a" + 1;
    let table = wte.wieght;
    let slice = x[.., 0..d + 1];
    let axis = sum(x, axis = 2);
    return mean(x);
  }
}

train {
  model     net = net(8);
  batch     microbatch = 4, microbatches = 2;
  data      x = synthetic(8);
  loss      net(x);
  ranks     1;
  schedule  gpipe(chunks = 2);
  optimizer sgd(lr = constant(0.1), momentun = 0.9);
  clip      global_norm(0.0);
  steps     1;
}

// CHECK: values.pp:13:30: error: a standard deviation can't be negative
// CHECK: values.pp:14:27: error: module 'linear' has no argument 'with_bais'
// CHECK: note: did you mean 'with_bias'?
// CHECK-NOT: with_bais
// CHECK: values.pp:16:19: error: 8 / 3 is not exact
// CHECK-NEXT: let third = d / layers;
// CHECK-NEXT:               ^
// CHECK-NEXT: values.pp:16:19: note: div(a, b) rounds down; 8.0 / 3 is a float
// CHECK: values.pp:31:13: note: in the call of 'net' here
// CHECK: values.pp:17:36: error: 9223372036854775807 + 8 does not fit in 64 bits
// CHECK: values.pp:18:25: error: index 3 is not within a list of 2
// CHECK: values.pp:19:20: error: '+' does not work on a string and the int 1
// CHECK: values.pp:20:21: error: module 'embedding' has no member 'wieght'
// CHECK: note: did you mean 'weight'?
// CHECK: values.pp:21:24: error: 0..9 is not within axis 1 of f32[4, 8]
// CHECK: values.pp:22:23: error: axis 2 of a tensor with 2 axes
// CHECK: values.pp:34:37: error: optimizer 'sgd' has no argument 'momentun'
// CHECK: note: did you mean 'momentum'?
// CHECK: values.pp:35:13: error: the limit of global_norm must be positive
// CHECK: note: required here
// CHECK: values.pp:33:19: error: schedule 'gpipe' has no argument 'chunks'
// CHECK: values.pp:8:7: error: const 'circle' depends on itself
// CHECK: values.pp:9:16: note: it is needed here to compute its own value
