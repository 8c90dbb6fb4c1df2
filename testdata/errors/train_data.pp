// Sources and their arguments.
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
  data      x = synthetic(0);
  data      y = bytes(3, 8);
  data      z = bytes("a", 8, order = shuffled);
  data      w = 5;
  data      v = synthetic(8, -1);
  loss      net(x);
  ranks     1;
  schedule  gpipe;
  optimizer sgd(lr = constant(0.1));
  steps     1;
}

// CHECK: train_data.pp:14:27: error: the size of a sample must be from 1 to 2^31 - 1, not 0
// CHECK: train_data.pp:15:23: error: 'bytes' needs a path, not the int 3
// CHECK: train_data.pp:16:31: error: 'order' of bytes is sequential (or left out), not the word 'shuffled'
// CHECK: train_data.pp:17:17: error: a data source is bytes(…), tokens16(…), f32_file(…), i32_file(…) or synthetic(…), not the int 5
// CHECK: train_data.pp:18:30: error: the vocabulary must be from 1 to 2^31 - 1, not -1
