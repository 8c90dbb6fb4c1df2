// A member that is not there; a list of members and its index.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
use nn; use optim; use schedules;

module net(d) {
  h[2]: linear(d, d);
  fn (x: [b, d]) {
    let a = h[0].wieght;
    let c = h.weight;
    let e = h[2](x);
    let f = h(x);
    let g = h[0].bias.size;
    return mean(h[1](x));
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

// CHECK: module_member.pp:9:18: error: module 'linear' has no member 'wieght'
// CHECK: <library>/nn.pp:{{.*}}: note: did you mean 'weight'?
// CHECK: module_member.pp:22:13: note: in the call of 'net' here
// CHECK: module_member.pp:10:15: error: a list has no members
// CHECK: module_member.pp:22:13: note: in the call of 'net' here
// CHECK: module_member.pp:11:14: error: index 2 is not within a list of 2
// CHECK: module_member.pp:22:13: note: in the call of 'net' here
// CHECK: module_member.pp:12:13: error: a list can't be called
// CHECK: module_member.pp:12:13: note: an element can: list[0](…)
// CHECK: module_member.pp:22:13: note: in the call of 'net' here
// CHECK: module_member.pp:13:23: error: the tensor f32[8] has no members
// CHECK: module_member.pp:22:13: note: in the call of 'net' here
