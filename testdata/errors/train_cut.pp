// More stages than layers.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
use nn; use optim; use schedules;

module net(d) {
  h[3]: linear(d, d);
  fn (x: [b, d]) {
    for i in 0..3 {
      x = h[i](x);
      if cut(i, 3, 4) { stage_end; }
    }
    return mean(x);
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

// CHECK: train_cut.pp:11:10: error: there are fewer layers than stages
// CHECK: <library>/nn.pp:{{.*}}: note: required here: layers = 3, stages = 4
// CHECK: train_cut.pp:21:13: note: in the call of 'net' here
