// A require of the library names what does not fit.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
use nn; use optim; use schedules;

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
  schedule  interleaved_1f1b(chunks = 2);
  optimizer sgd(lr = constant(0.1));
  steps     1;
}

// CHECK: schedule_interleaved.pp:17:13: error: stages must be ranks * chunks
// CHECK: <library>/schedules.pp:{{.*}}: note: required here: stages = 1, ranks = 1, chunks = 2
