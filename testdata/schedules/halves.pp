// Schedules that run the halves of the backward pass, on a line and in a V, and one with overlaps:
// same bits as gpipe on one rank.
// RUN: %ppc run %s --json --ranks=1 --schedule=gpipe >base.json
// RUN: %ppc run %s --json --ranks=4 --schedule=zb_h1_here >h1.json
// RUN: %ppc run %s --json --ranks=2 --schedule=v_shape >v.json
// RUN: %ppc run %s --json --ranks=2 --schedule=mixed >mixed.json
// RUN: %ppc run %s --json --ranks=2 --schedule=pairs >pairs.json
// RUN: python3 %root/testdata/compare.py same base.json h1.json v.json mixed.json pairs.json
use nn;
use optim;
use schedules;

const layers = 4;
const width = 16;
const length = 8;
const stages = 4;

module block(d) {
  norm: layer_norm(d);
  up: linear(d, 2 * d, std = 0.2);
  down: linear(2 * d, d, std = 0.2);
  fn (x: [.., d], first: [.., d]) { return x + down(gelu(up(norm(x)))) + 0.1 * first; }
}

module net(layers, d, length, stages) {
  stem: linear(length, d, std = 0.3);
  blocks[layers]: block(d);
  head: linear(d, length, std = 0.1);
  fn (sample: [b, length]) {
    let x = cast(sample, real);
    let first = stem(x);
    let y = first;
    for i in 0..layers {
      y = blocks[i](y, first);
      if cut(i, layers, stages) { stage_end; }
    }
    return mean_squared_error(head(y), sin(x));
  }
}

schedule zb_h1_here(ranks, stages, microbatches) {
  require stages == ranks, "one stage on each rank";
  rank r {
    let f = 0; let i = 0; let w = 0;
    while f < min(microbatches, ranks - 1 - r) { fwd(r, f); f += 1; }
    while i < microbatches {
      if f < microbatches { fwd(r, f); f += 1; }
      bwd_input(r, i); i += 1;
      if i - w > r { bwd_weight(r, w); w += 1; }
    }
    while w < microbatches { bwd_weight(r, w); w += 1; }
  }
}

// Stages 0 and 3 on rank 0, 1 and 2 on rank 1.
schedule v_shape(ranks, stages, microbatches) {
  rank r {
    let low = r; let high = stages - 1 - r;
    for i in 0..microbatches { fwd(low, i); }
    for i in 0..microbatches { fwd(high, i); bwd_input(high, i); }
    for i in 0..microbatches { bwd_input(low, i); bwd_weight(high, i); }
    for i in 0..microbatches { bwd_weight(low, i); }
  }
}

// Some microbatches run the halves, some the whole.
schedule mixed(ranks, stages, microbatches) {
  let k = stages / ranks;
  rank r {
    for i in 0..microbatches { for s in r * k..(r + 1) * k { fwd(s, i); } }
    for i in 0..microbatches {
      for s in reverse(r * k..(r + 1) * k) {
        if mod(i + s, 2) == 0 { bwd(s, i); } else { bwd_input(s, i); bwd_weight(s, i); }
      }
    }
  }
}

// 1F1B whose pairs of a forward and a backward may run together.
schedule pairs(ranks, stages, microbatches) {
  let k = stages / ranks;
  rank r {
    let ahead = min(microbatches, 2 * (ranks - r - 1) + 1);
    for i in 0..ahead { for s in r * k..(r + 1) * k { fwd(s, i); } }
    for i in 0..microbatches {
      for s in reverse(r * k..(r + 1) * k) {
        if i + ahead < microbatches { overlap { fwd(2 * r * k + k - 1 - s, i + ahead); bwd(s, i); } }
        else { bwd(s, i); }
      }
    }
  }
}

train {
  model     net = net(layers, width, length, stages);
  batch     microbatch = 4, microbatches = 6;
  data      x = synthetic(length);
  loss      net(x);
  ranks     2;
  schedule  v_shape;
  optimizer adamw(lr = constant(1e-3));
  clip      global_norm(1.0);
  steps     3;
  seed      5;
}
