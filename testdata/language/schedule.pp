// RUN: %ppc check %s
// RUN: %ppc check %s --microbatches=8
// A schedule that makes its lists first, as a greedy one does, and costs as an argument.
use nn; use optim; use schedules;

const stages = 2;

schedule by_list(ranks, stages, microbatches, cost = 1, order = "backward first") {
  require stages == ranks, "by_list runs one stage on each rank";
  require cost > 0 and order == "backward first", "the arguments";
  let todo = [];
  for r in 0..ranks {
    append(todo, []);
    let warmup = min(microbatches, ranks - r - 1);
    for i in 0..warmup { append(todo[r], [0, i]); }
    for i in 0..microbatches {
      if i + warmup < microbatches { append(todo[r], [0, i + warmup]); }
      append(todo[r], [1, i]);
    }
  }
  fn act(r, what) {
    if what[0] == 0 { fwd(r, what[1]); } else { bwd(r, what[1]); }
  }
  rank r {
    require len(todo[r]) == 2 * microbatches, "every action is there";
    for what in todo[r] { act(r, what); }
  }
}

module net(d) {
  a: linear(d, d);
  b: linear(d, d);
  fn (x: [n, d]) {
    let y = a(x);
    stage_end;
    return mean(b(y));
  }
}

train {
  model     net = net(4);
  batch     microbatch = 2, microbatches = 4;
  data      x = synthetic(4);
  loss      net(x);
  ranks     2;
  stages    stages;
  schedule  by_list(cost = 2);
  optimizer sgd(lr = constant(0.1));
  steps     1;
}
