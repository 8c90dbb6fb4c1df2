// State starts as zeros.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
use nn; use optim; use schedules;

optimizer mine() {
  state m = ones;
  fn (p, g, step) { m = g > 0.0; return p; }
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

// CHECK: optimizer_state.pp:7:13: error: an optimizer's state starts as zeros
// CHECK: optimizer_state.pp:23:13: note: in the call of 'mine' here
// CHECK: optimizer_state.pp:8:34: error: state 'm' must be f32[8], but this is bool[8]
// CHECK: optimizer_state.pp:23:13: note: in the call of 'mine' here
