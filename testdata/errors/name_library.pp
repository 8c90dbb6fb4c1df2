// A name of a library file that is not used.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
use nn; use schedules;

module net(d) {
  param w: [d] = ones;
  fn (x: [b, d]) {
    let y = cosine(x);
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

// CHECK: name_library.pp:9:13: error: unknown name 'cosine'
// CHECK: name_library.pp:9:13: note: the library has it: 'use optim;'
// CHECK: name_library.pp:21:13: error: unknown name 'sgd'
// CHECK: name_library.pp:21:13: note: the library has it: 'use optim;'
// CHECK: name_library.pp:21:22: error: unknown name 'constant'
// CHECK: name_library.pp:21:22: note: the library has it: 'use optim;'
