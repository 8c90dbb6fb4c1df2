// What a pipeline must carry that a plain chain hasn't: the stem passes through stages that don't touch it
// and is read by the last, one weight serves three stages, an output that nothing else reads is made in the
// middle, a stage is empty, ids cross stages, and there is dropout.
use nn;
use optim;
use schedules;

const width = 8;
const length = 3;

module net(d, length) {
  shared: linear(d, d, std = 0.3);
  stem: linear(1, d, std = 0.8);
  table: embedding(d + 1, d, std = 0.3);
  head: linear(d, 1, std = 0.3);
  fn (sample: [b, length]) {
    let x = reshape(cast(sample, real), [b, length, 1]);
    let first = stem(x);
    let positive = first > 0.0;
    stage_end;
    let y = tanh(shared(first));
    output middle = concat(sum(y, axis = -1));
    stage_end;
    stage_end;
    let z = y + dropout(tanh(shared(y)), 0.2);
    stage_end;
    let ids = sum(cast(positive, i32), axis = -1);
    let w = z + tanh(shared(z)) + table(ids);
    stage_end;
    return mean_squared_error(head(w + first), sin(x));
  }
}

// Halves and wholes in turn, in the stages that have no backward as well.
schedule in_turn(ranks, stages, microbatches) {
  let k = div(stages, ranks);
  rank r {
    for i in 0..microbatches { for s in r * k..(r + 1) * k { fwd(s, i); } }
    for i in 0..microbatches {
      for s in reverse(r * k..(r + 1) * k) {
        if mod(i + s, 2) == 0 { bwd(s, i); } else { bwd_input(s, i); bwd_weight(s, i); }
      }
    }
  }
}

train {
  model     net = net(width, length);
  batch     microbatch = 2, microbatches = 5;
  data      x = synthetic(length);
  loss      net(x);
  ranks     6;
  schedule  one_f_one_b;
  optimizer adamw(lr = constant(3e-3));
  clip      global_norm(1.0);
  steps     3;
  seed      9;
}
