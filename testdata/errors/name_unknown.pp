// An unknown name, and the nearest that is known.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
use nn; use optim; use schedules;

module net(d) {
  param w: [d] = ones;
  fn (x: [b, d]) {
    let lenght = 3;
    let y = x * length2;
    let z = reshpae(x, [-1]);
    let q = layer_norn(d);
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

// CHECK: name_unknown.pp:10:17: error: unknown name 'length2'
// CHECK: name_unknown.pp:9:9: note: did you mean 'lenght'?
// CHECK: name_unknown.pp:11:13: error: unknown name 'reshpae'
// CHECK: name_unknown.pp:11:13: note: did you mean 'reshape'?
// CHECK: name_unknown.pp:12:13: error: unknown name 'layer_norn'
// CHECK: <library>/nn.pp:{{.*}}: note: did you mean 'layer_norm'?
