// Stage 0 feeds stages 1 and 2.
use nn; use optim; use schedules;

module net(d) {
  h[3]: linear(d, d, std = 0.3);
  fn (sample: [b, d]) {
    let x = h[0](sample);
    let skip = x;
    stage_end;
    let y = h[1](skip);
    stage_end;
    return mean_squared_error(h[2](y + skip), 0.5 * sample);
  }
}

train {
  model     net = net(8);
  batch     microbatch = 2, microbatches = 1;
  data      x = synthetic(8);
  loss      net(x);
  ranks     3;
  schedule  one_f_one_b;
  optimizer sgd(lr = 0.1);
  steps     2;
}
