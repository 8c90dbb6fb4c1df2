// 16 bits hold 65536 tokens.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
use nn; use optim; use schedules;

module net(d) {
  wte: embedding(119547, d);
  fn (ids: i32[b, t]) { return mean(wte(ids)); }
}

train {
  model     net = net(8);
  batch     microbatch = 4, microbatches = 2;
  data      x = tokens16("corpus.u16", 8);
  loss      net(x);
  ranks     1;
  schedule  gpipe;
  optimizer sgd(lr = constant(0.1));
  steps     1;
}

// CHECK: train_vocabulary.pp:14:17: error: tokens16 holds ids up to 65535, but the table that they index has 119547 rows
// CHECK: <library>/nn.pp:{{.*}}: note: it is indexed here
