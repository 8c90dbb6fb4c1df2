// A chain of `stages` small stages, for the speed of the compiler alone.
use nn;
use optim;
use schedules;

const stages = 768;
const width = 4;

module net(d) {
  parts[stages]: linear(d, d, std = 0.1);
  fn (x: [b, d]) {
    for i in 0..stages {
      x = tanh(parts[i](x));
      if i + 1 < stages { stage_end; }
    }
    return mean(x * x);
  }
}

train {
  model     net = net(width);
  data      x = synthetic(width);
  batch     microbatch = 1, microbatches = 512;
  loss      net(cast(x, real));
  ranks     64;
  schedule  interleaved_zero_bubble;
  optimizer sgd(lr = constant(1e-3));
  steps     1;
}
