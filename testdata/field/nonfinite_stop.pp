// The same with `stop` (see nonfinite.pp): the run ends at once, on all ranks, and says where it was.
//
// RUN: timeout 60 %ppc run %s --json >stop.json 2>stop.err; s=$?; cat stop.err; test $s -ne 0 -a $s -ne 124
// RUN: grep -E 'step 1' stop.err && grep -E 'h.2.root|stage 2' stop.err
use nn; use optim; use schedules;

module block(d) {
  weigh: linear(d, d, std = 0.3);
  param root: [d] = zeros;
  fn (x: [b, d]) { return weigh(x) + root; }
}
module net(d) {
  h[4]: block(d);
  fn (x: [b, d]) {
    let y = x;
    for i in 0..4 {
      y = h[i](y);
      if i == 2 { y = y + sqrt(h[i].root); }
      if i < 3 { stage_end; }
    }
    return mean(y * y);
  }
}

train {
  model     net = net(4);
  batch     microbatch = 2, microbatches = 2;
  data      x = synthetic(4);
  loss      net(x);
  ranks     4;
  schedule  one_f_one_b;
  optimizer adamw(lr = 0.1);
  nonfinite stop;
  steps     3;
}
