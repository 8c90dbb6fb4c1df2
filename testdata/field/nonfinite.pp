// A gradient that is infinite in one stage only: sqrt(p) at p = 0. All ranks take the same decision; with
// `skip` the bad step changes neither weights nor moments.
//
// RUN: for r in 1 4; do %ppc run %s --ranks=$r --json --save=skip$r.st >skip$r.json 2>skip$r.err || exit 1; done
// RUN: python3 %root/testdata/compare.py same skip1.json skip4.json
// RUN: %ppc run %s --steps=3 >text && grep -q 'norm nan ' text && ! grep -e -nan text
// RUN: %ppc run %s --steps=0 --save=start.st --json >start.json
// RUN: python3 %root/testdata/compare.py tensors start.st skip4.st 0
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
  nonfinite skip;
  steps     3;
}
