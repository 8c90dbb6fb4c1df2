// Operators and what they work on.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
use nn; use optim; use schedules;

module net(d) {
  param w: [d] = ones;
  fn (x: [b, d]) {
    let a = "a" + 1;
    let c = not 3;
    let e = 1 and true;
    let f = -"a";
    let g = [1] < [2];
    let h = 1 < "a";
    let k = 3 @ 4;
    let m = 1 == "a";
    let o = sqrt("a");
    let p = len(3);
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

// CHECK: value_operator.pp:9:17: error: '+' does not work on a string and the int 1
// CHECK: value_operator.pp:27:13: note: in the call of 'net' here
// CHECK: value_operator.pp:10:13: error: 'not' works on bools, not on the int 3
// CHECK: value_operator.pp:27:13: note: in the call of 'net' here
// CHECK: value_operator.pp:11:15: error: 'and' works on bools, not on the int 1
// CHECK: value_operator.pp:27:13: note: in the call of 'net' here
// CHECK: value_operator.pp:12:13: error: '-' does not work on a string
// CHECK: value_operator.pp:27:13: note: in the call of 'net' here
// CHECK: value_operator.pp:13:17: error: '<' does not work on a list and a list
// CHECK: value_operator.pp:27:13: note: in the call of 'net' here
// CHECK: value_operator.pp:14:15: error: '<' does not work on the int 1 and a string
// CHECK: value_operator.pp:27:13: note: in the call of 'net' here
// CHECK: value_operator.pp:15:15: error: '@' does not work on the int 3 and the int 4
// CHECK: value_operator.pp:27:13: note: in the call of 'net' here
// CHECK: value_operator.pp:16:15: error: can't compare the int 1 with a string
// CHECK: value_operator.pp:27:13: note: in the call of 'net' here
// CHECK: value_operator.pp:17:18: error: 'sqrt' works on tensors and numbers, not on a string
// CHECK: value_operator.pp:27:13: note: in the call of 'net' here
// CHECK: value_operator.pp:18:17: error: 'len' works on lists, not on the int 3
// CHECK: value_operator.pp:27:13: note: in the call of 'net' here
