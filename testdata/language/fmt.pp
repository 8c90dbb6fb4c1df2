// RUN: %ppc fmt %s > %t
// RUN: diff %s %t
// This file is in the printer's form.  (Comments keep their spaces.)
use optim; use schedules;

const d = 4;  // behind

const long = some(first_of_the_arguments, second_of_the_arguments, third_of_the_arguments,
    fourth_of_them);

fn some(a, b, c, d) { return a + b + c + d; }

const first_of_the_arguments = 1; const second_of_the_arguments = 2;
const third_of_the_arguments = 3;
const fourth_of_them = (1 + 2) * 3;

fn layout(x: [.., n], scale = 1.0, f = fn (y) { return -y; }) {
  // own line
  let a = 1; let b = 2;

  if a == b {
    f(a);  // behind
  } else if a < b and not (b < a) {
    f(b);
  } else {
    /* a block comment */
    f(0);
  }
  for i in 0..n { f(i); }
  while false {}
  let g = fn (y) {
    // inside
    return y;
  };
  return x[.., 0..n] * scale;
  // last
} derivative (y, dy) {
  return dy * scale;
}

module net(n) {
  param weight: f32[n, 2 * n] = normal(0.0, 0.02);
  h[n]: part(n);
  fn (x) {
    output size = mean(x);
    stage_end;
    return x;
  }
}

module part(n) {}

train {
  model     net = net(d);
  // the batch
  batch     microbatch = 2, microbatches = 2;
  data      x = synthetic(4);
  loss      net(x);
  ranks     1;
  schedule  gpipe;
  optimizer sgd(lr = constant(0.1));
  steps     1;
}
