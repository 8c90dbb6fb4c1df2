// A tied weight counts once: in the norm (√800 for 200 elements whose summed gradient is 2, not 40), in the
// clip's factor and in the number of parameters.
//
// RUN: for r in 1 2; do %ppc run %s --ranks=$r --json --save=$r.st >$r.json || exit 1; python3 %root/testdata/compare.py step $r.json 1 1e-6 grad_norm=28.284271247 || exit 1; done
// RUN: for r in 1 2; do python3 %root/testdata/compare.py elements $r.st 1e-6 w=0.929289346 || exit 1; done
// RUN: python3 %root/testdata/compare.py same 1.json 2.json
// RUN: %ppc check %s --ranks=2 >check.txt; cat check.txt; grep '200 parameters in 1 tensor' check.txt
use optim; use schedules;

module net() {
  param w: [200] = ones;
  fn (x: [b, 1]) {
    let early = sum(w);
    stage_end;
    return early + sum(w) + 0.0 * mean(x);
  }
}

train {
  model     net = net();
  batch     microbatch = 2, microbatches = 4;
  data      x = synthetic(1);
  loss      net(x);
  ranks     1;
  schedule  one_f_one_b;
  optimizer sgd(lr = 1.0);
  clip      global_norm(1.0);
  steps     1;
}
