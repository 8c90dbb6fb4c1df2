// What a rank keeps for its backward passes, in units of one stage's stash.
// The most microbatches whose activations are alive under 1F1B on 4 ranks are 4, 3, 2, 1:
// RUN: %ppc check %s --ranks=4 --microbatches=8 --schedule=one_f_one_b --json >1f1b.json
// RUN: python3 %p/stashes.py 1f1b.json 4,3,2,1 0,0,0,0
// A forward stash goes at bwd_input, a weight stash stays until bwd_weight (arXiv 2401.10241, §2.3):
// RUN: %ppc check %s --ranks=4 --microbatches=8 --schedule='halves(1)' --json >h1.json
// RUN: python3 %p/stashes.py h1.json 4,3,2,1 0,1,2,3
// RUN: %ppc check %s --ranks=4 --microbatches=8 --schedule='halves(2)' --json >h2.json
// RUN: python3 %p/stashes.py h2.json 7,5,3,1 0,2,4,6
// and does not grow with the number of microbatches:
// RUN: %ppc check %s --ranks=4 --microbatches=32 --schedule='halves(1)' --json >more.json
// RUN: python3 %p/stashes.py more.json 4,3,2,1 0,1,2,3
// With small forward stashes it is the weight stashes that peak, one action later:
// RUN: %ppc check %s --ranks=4 --microbatches=8 --schedule='halves(1)' -D deep=1 --json >small.json
// RUN: python3 %p/stashes.py small.json 3,2,1,0 1,2,3,4
// Every schedule of the library:
// RUN: python3 %p/library_stashes.py %ppc %s
use nn;
use optim;
use schedules;

const layers = 4;
const width = 16;
const deep = 4;

// Much that only bwd_input needs: `deep` results of tanh. The weight half needs the last, and an adjoint.
module block(d) {
  down: linear(d, d, std = 0.2);
  fn (x) {
    let h = x;
    for i in 0..deep { h = tanh(h); }
    return x + down(h);
  }
}

module net(layers, d) {
  stem: linear(d, d, std = 0.2);
  blocks[layers]: block(d);
  fn (sample: [b, d]) {
    let y = stem(sample);
    for i in 0..layers {
      y = blocks[i](y);
      if i + 1 < layers { stage_end; }
    }
    return mean_squared_error(y, sample);
  }
}

// ZB-H1 with lead 1, ZB-H2 with lead 2.
schedule halves(ranks, stages, microbatches, lead) {
  require stages == ranks, "one stage on each rank";
  rank r {
    let f = 0; let i = 0; let w = 0;
    while f < min(microbatches, lead * (ranks - 1 - r)) { fwd(r, f); f += 1; }
    while i < microbatches {
      if f < microbatches { fwd(r, f); f += 1; }
      bwd_input(r, i); i += 1;
      if i - w > lead * r { bwd_weight(r, w); w += 1; }
    }
    while w < microbatches { bwd_weight(r, w); w += 1; }
  }
}

train {
  model     net = net(layers, width);
  batch     microbatch = 4, microbatches = 8;
  data      x = synthetic(width);
  loss      net(cast(x, real));
  ranks     4;
  schedule  one_f_one_b;
  optimizer sgd(lr = constant(1e-3));
  steps     1;
}
