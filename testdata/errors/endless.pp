// A schedule that never ends meets the budget; a tensor is no condition; an update has to keep shapes.
//
// RUN: ! %ppc check %s -D which=0 2>%t
// RUN: %FileCheck --check-prefix=DEPTH <%t
// RUN: ! %ppc check %s -D which=1 2>%t
// RUN: %FileCheck --check-prefix=RANGE <%t
// RUN: ! %ppc check %s -D which=2 2>%t
// RUN: %FileCheck --check-prefix=CONDITION <%t
// RUN: ! %ppc check %s -D whihc=2 2>%t
// RUN: %FileCheck --check-prefix=DEFINE <%t
use optim;

const which = 3;

schedule odd(ranks, microbatches) {
  fn down(n) { return down(n + 1); }
  rank r {
    if which == 0 { down(0); }
    for i in 0..microbatches { fwd(which == 1 ? 7 : 0, i); bwd(0, i); }
  }
}

optimizer careful(limit) {
  fn (p, g, step) {
    if which == 2 {
      if step < limit { return p; }
    }
    return p - 0.1 * g;
  }
}

module net(d) {
  param w: [d] = ones;
  fn (x: [b, d]) { return mean(x * w); }
}

train {
  model     net = net(8);
  batch     microbatch = 4, microbatches = 2;
  data      x = synthetic(8);
  loss      net(x);
  ranks     1;
  schedule  odd;
  optimizer careful(3);
  steps     1;
}

// DEPTH: endless.pp:16:23: error: calls are nested more than 1000 deep here
// DEPTH: endless.pp:43:13: note: in the call of 'odd' here
// RANGE: endless.pp:19:36: error: stage 7 is out of range: there are 1, from 0
// RANGE: endless.pp:41:3: note: 1 stage here
// CONDITION: endless.pp:26:15: error: 'if' needs a bool at compile time, but this is known only at run time
// CONDITION: endless.pp:26:15: note: select(c, a, b) chooses at run time
// CONDITION: endless.pp:44:13: note: in the call of 'careful' here
// DEFINE: error: -D whihc: '{{.*}}' has no const of that name
// DEFINE: endless.pp:13:7: note: did you mean 'which'?
