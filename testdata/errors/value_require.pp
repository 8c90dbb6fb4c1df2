// The text is the author's, the notes are the way there.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
use nn; use optim; use schedules;

fn check(n) {
  require n < 5, "n must be below 5";
}

module net(d) {
  param w: [d] = ones;
  fn (x: [b, d]) {
    check(7);
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

// CHECK: value_require.pp:13:5: error: n must be below 5
// CHECK: value_require.pp:7:3: note: required here: n = 7
// CHECK: value_require.pp:22:13: note: in the call of 'net' here
