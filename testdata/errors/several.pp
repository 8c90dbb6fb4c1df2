// One run tells what is wrong in many places.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
use nn; use optim; use schedules;

module net(d) {
  a: linear(d, 2 * d);
  c: linear(d, d);
  fn (x: [b, d]) {
    let y = c(a(x));
    let z = x + random([3]);
    let q = 7 / 2;
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
  optimizer sgd(lr = constant(0.1));
  clip      global_norm(0.0);
  steps     1;
}

// CHECK: several.pp:10:15: error: 'x' is f32[4, 16], but axis 1 must be n_in = 8
// CHECK: <library>/nn.pp:{{.*}}: note: the shape is declared here
// CHECK: several.pp:21:13: note: in the call of 'net' here
// CHECK: several.pp:11:15: error: f32[4, 8] and f32[3] do not broadcast: axis -1 differs
// CHECK: several.pp:21:13: note: in the call of 'net' here
// CHECK: several.pp:12:15: error: 7 / 2 is not exact
// CHECK: several.pp:12:15: note: div(a, b) rounds down; 7.0 / 2 is a float
// CHECK: several.pp:21:13: note: in the call of 'net' here
// CHECK: several.pp:25:13: error: the limit of global_norm must be positive
// CHECK: <library>/optim.pp:{{.*}}: note: required here: limit = 0.0
// CHECK: several.pp:23:19: error: schedule 'gpipe' has no argument 'chunks'
// CHECK: <library>/schedules.pp:{{.*}}: note: it is declared here
