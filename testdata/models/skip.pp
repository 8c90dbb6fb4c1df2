// Skip connections across stages: the stem of stage 0 is read by every later stage, each of which gets
// it straight from there. It learns the cosine of its input.
use nn;
use optim;
use schedules;

const layers = 4;
const width = 24;
const length = 16;
const stages = 4;
const rate = 0.0;  // of dropout

module block(d, rate) {
  norm: layer_norm(d);
  up: linear(d, 2 * d, std = 0.2);
  down: linear(2 * d, d, std = 0.1);
  mix: linear(d, d, std = 0.1);
  fn (x: [.., d], stem: [.., d]) {
    let y = down(silu(up(norm(x))));
    return x + dropout(y, rate) + mix(stem);
  }
}

module skip(layers, d, length, stages, rate) {
  stem: linear(length, d, std = 0.3);
  blocks[layers]: block(d, rate);
  head: linear(d, length, std = 0.1);
  fn (sample: [b, length]) {
    let x = cast(sample, real);
    let first = stem(x);
    let y = first;
    for i in 0..layers {
      y = blocks[i](y, first);
      if cut(i, layers, stages) { stage_end; }
    }
    let error = head(y) - cos(x);
    output worst = max(max(error, -error));
    return mean(error * error);
  }
}

train {
  model     net = skip(layers, width, length, stages, rate);
  batch     microbatch = 4, microbatches = 4;
  data      x = synthetic(length);
  loss      net(x);
  ranks     2;
  schedule  one_f_one_b;
  optimizer adamw(lr = constant(3e-3));
  clip      global_norm(1.0);
  steps     40;
  seed      3;
}
