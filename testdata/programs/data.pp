// Shows which samples a step reads: rows of two files and windows of a third, as outputs.
use optim;
use schedules;

const n = 3;

module reader() {
  param w: [n] = zeros;
  fn (rows: i32[b, n], same: [b, n], window: i32[b, n]) {
    let x = cast(rows, real);
    output row = concat(max(x, axis = 1));
    output paired = max(abs(x - cast(same, real)));
    output first = concat(max(-cast(window, real), axis = 1));
    stage_end;
    return mean((x - w) * (x - w)) + mean(cast(window, real)) * 0.0;
  }
}

train {
  model     net = reader();
  batch     microbatch = 2, microbatches = 3;
  data      a = i32_file("rows.i32", n, order = shuffled);
  data      b = f32_file("rows.f32", n, order = shuffled);
  data      t = tokens16("tokens.u16", n, order = sequential);
  loss      net(a, b, t);
  ranks     2;
  schedule  gpipe;
  optimizer sgd(lr = constant(0.1));
  steps     4;
}
