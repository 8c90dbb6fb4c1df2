// A chain of small stages, for schedules from CSV files (csv.test, errors.test).
use nn; use optim; use schedules;

const stages = 2;

module net(d) {
  h[stages]: linear(d, d, std = 0.3);
  fn (x: [b, d]) {
    let y = x;
    for i in 0..stages {
      y = y + gelu(h[i](y));
      if i + 1 < stages { stage_end; }
    }
    return mean_squared_error(y, 0.5 * x);
  }
}

schedule pairs(ranks, stages, microbatches) {
  rank r {
    for i in 0..microbatches {
      if r == 0 or i == 0 { fwd(r, i); }
      if r == 1 { if i + 1 < microbatches { overlap { bwd(1, i); fwd(1, i + 1); } } else { bwd(1, i); } }
    }
    if r == 0 { for i in 0..microbatches { bwd(0, i); } }
  }
}

schedule triples(ranks, stages, microbatches) {
  rank r {
    for i in 0..microbatches { fwd(r, i); }
    for i in 0..microbatches { bwd_input(r, i); }
    overlap { for i in 0..microbatches { bwd_weight(r, i); } }
  }
}

schedule whole_and_halves(ranks, stages, microbatches) {
  rank r {
    for i in 0..microbatches { fwd(r, i); }
    for i in 0..microbatches {
      if mod(i, 2) == 0 { bwd(r, i); } else { bwd_input(r, i); bwd_weight(r, i); }
    }
  }
}

train {
  model     net = net(8);
  batch     microbatch = 2, microbatches = 2;
  data      x = synthetic(8);
  loss      net(x);
  ranks     2;
  schedule  one_f_one_b;
  optimizer sgd(lr = 0.1);
  steps     2;
}
