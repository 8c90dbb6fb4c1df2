// The smallest model that shows all parts: layers in stages, f32 data, an optimizer, a schedule. It
// learns sin, element by element.
use nn;
use optim;
use schedules;

const layers = 4;
const width = 32;
const length = 8;  // numbers in a sample
const stages = 2;

module mlp(layers, width, length, stages) {
  first: linear(length, width, std = 0.3);
  hidden[layers]: linear(width, width, std = 0.2);
  last: linear(width, length, std = 0.2);

  fn (sample: [b, length]) {
    let x = cast(sample, real);
    let y = first(x);
    for i in 0..layers {
      y = y + gelu(hidden[i](y));
      if cut(i, layers, stages) { stage_end; }
    }
    return mean_squared_error(last(y), sin(x));
  }
}

train {
  model     net = mlp(layers, width, length, stages);
  batch     microbatch = 8, microbatches = 4;
  data      x = synthetic(length);
  loss      net(x);
  ranks     2;
  schedule  one_f_one_b;
  optimizer sgd(lr = constant(0.05), momentum = 0.9);
  steps     50;
  seed      1;
}
