// Gradients are divided by the number of microbatches once, however many stages follow.
// a = 2, b = 3, loss a·b·x·c (c = 1), x = 0 … 7 as 8 microbatches of one: the gradients are 10.5, 7 and 21.
//
// RUN: python3 -c 'import struct, sys; sys.stdout.buffer.write(struct.pack("<8f", *range(8)))' >x.f32
// RUN: for r in 1 4; do %ppc run %s --ranks=$r --data x=x.f32 --json --save=$r.st --save-gradients=$r.gr >$r.json || exit 1; done
// RUN: for r in 1 4; do python3 %root/testdata/compare.py elements $r.gr 0 a=10.5 b=7 c=21 d=21 || exit 1; done
// RUN: for r in 1 4; do python3 %root/testdata/compare.py elements $r.st 0 a=-8.5 b=-4 c=-20 d=-20 || exit 1; done
// RUN: python3 %root/testdata/compare.py same 1.json 4.json
use optim; use schedules;

module net() {
  param a: [1] = uniform(2.0, 2.0);
  param b: [1] = uniform(3.0, 3.0);
  param c: [1] = ones;
  param d: [1] = ones;
  fn (x: [n, 1]) {
    let y = a * x;
    stage_end;
    y = y * b;
    stage_end;
    y = y * c;
    stage_end;
    return mean(y * d);
  }
}

train {
  model     net = net();
  batch     microbatch = 1, microbatches = 8;
  data      x = f32_file("x.f32", 1);
  loss      net(x);
  ranks     1;
  schedule  one_f_one_b;
  optimizer sgd(lr = 1.0);
  steps     1;
}
