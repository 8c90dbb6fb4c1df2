// Calls and their arguments.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
use nn; use optim; use schedules;

fn f(a, b, c = 1) { return a + b + c; }
fn two() { return 1, 2; }
fn nothing() { }

module net(d) {
  param w: [d] = ones;
  fn (x: [b, d]) {
    let a = f(1);
    let c = f(1, 2, 3, 4);
    let e = f(1, 2, d = 3);
    let g = f(1, 2, a = 3);
    let h = 3(1);
    let k = sum(x, axes = 1);
    let l = sum();
    let m = exp(x, 1);
    let o, p = f(1, 2);
    let q = two();
    let r = nothing();
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

// CHECK: value_call.pp:13:13: error: function 'f' needs argument 'b'
// CHECK: value_call.pp:6:9: note: it is declared here
// CHECK: value_call.pp:32:13: note: in the call of 'net' here
// CHECK: value_call.pp:14:24: error: function 'f' takes 3 arguments, here are 4
// CHECK: value_call.pp:6:4: note: it is declared here
// CHECK: value_call.pp:32:13: note: in the call of 'net' here
// CHECK: value_call.pp:15:21: error: function 'f' has no argument 'd'
// CHECK: value_call.pp:6:4: note: it is declared here
// CHECK: value_call.pp:32:13: note: in the call of 'net' here
// CHECK: value_call.pp:16:21: error: argument 'a' is given twice
// CHECK: value_call.pp:32:13: note: in the call of 'net' here
// CHECK: value_call.pp:17:13: error: the int 3 can't be called
// CHECK: value_call.pp:32:13: note: in the call of 'net' here
// CHECK: value_call.pp:18:20: error: 'sum' has no argument 'axes'
// CHECK: value_call.pp:18:20: note: did you mean 'axis'?
// CHECK: value_call.pp:32:13: note: in the call of 'net' here
// CHECK: value_call.pp:19:13: error: 'sum' needs argument 'x'
// CHECK: value_call.pp:32:13: note: in the call of 'net' here
// CHECK: value_call.pp:20:20: error: 'exp' takes 1 argument by place, here are 2
// CHECK: value_call.pp:32:13: note: in the call of 'net' here
// CHECK: value_call.pp:21:16: error: this gives one result, here are 2 names
// CHECK: value_call.pp:32:13: note: in the call of 'net' here
// CHECK: value_call.pp:22:13: error: this gives 2 results where one is needed: let a, b = …;
// CHECK: value_call.pp:32:13: note: in the call of 'net' here
// CHECK: value_call.pp:23:13: error: this gives no value: the function ends without a 'return' of one
// CHECK: value_call.pp:32:13: note: in the call of 'net' here
