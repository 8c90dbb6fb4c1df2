// Attention on GPUs keeps rows of a head in shared memory.
//
// RUN: %ppc check %s --target=cuda 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
// RUN: %ppc check %s && %ppc check %s --target=cuda -D width=512
use nn; use optim; use schedules;

const width = 520;

module net(d) {
  param w: [d / 2] = ones;
  fn (x: [b, n]) {
    let q = reshape(x, [b, 2, n / d, d / 2]) * w;
    return mean(attention(q, q, q));
  }
}

train {
  model     net = net(width);
  batch     microbatch = 4, microbatches = 2;
  data      x = synthetic(2 * width);
  loss      net(x);
  ranks     1;
  schedule  gpipe;
  optimizer sgd(lr = constant(0.1));
  steps     1;
}

// CHECK: cuda_head.pp:13:17: error: 'attention': heads of width 260; on GPUs they have at most 256
