// What stands behind the end of a function or a turn of a loop is a warning: a lost stage_end cuts nothing.
//
// RUN: %ppc check %s 2>%t && %FileCheck --implicit-check-not=warning: --implicit-check-not=error: <%t
use nn; use optim; use schedules;

module net(d) {
  a: linear(d, d);
  fn (x: [n, d]) {
    let y = x;
    for i in 0..4 {
      if i == 2 {
        break;
        y = y + 1.0;
      }
      if i == 1 {
        continue;
        y = y + 1.0;
      }
      y = a(y);
    }
    return mean(y * y);
    stage_end;
    y = y + 1.0;
  }
}
// CHECK: unreachable.pp:[[# @LINE - 13]]:9: warning: this never runs
// CHECK: unreachable.pp:[[# @LINE - 15]]:9: note: the 'break' before it ends the loop
// CHECK: unreachable.pp:[[# @LINE - 11]]:9: warning: this never runs
// CHECK: note: the 'continue' before it ends the turn of the loop
// CHECK: unreachable.pp:[[# @LINE - 8]]:5: warning: this never runs
// CHECK: unreachable.pp:[[# @LINE - 10]]:5: note: the 'return' before it ends the function

train {
  model     net = net(4);
  batch     microbatch = 2, microbatches = 2;
  data      x = synthetic(4);
  loss      net(x);
  ranks     1;
  schedule  gpipe;
  optimizer sgd(lr = constant(0.1));
  steps     2;
}
