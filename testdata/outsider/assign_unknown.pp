// A habit from Python: a variable is declared by its first assignment.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: --implicit-check-not=note: <%t
use nn; use optim; use schedules;

module net(d) {
  param w: [d] = ones;
  fn (x: [b, d]) {
    hidden = x * w;
    hidden = hidden * 2.0;
    return mean(hidden);
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

// CHECK: assign_unknown.pp:9:5: error: unknown name 'hidden'
// CHECK: assign_unknown.pp:9:5: note: 'let hidden = …;' declares it
