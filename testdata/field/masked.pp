// A loss returns a sum and a count: the step's loss is the sum of all sums over the sum of all counts,
// and so are the gradients. Two microbatches, (loss sum, counted tokens) = (2, 1) and (90, 9): 92 / 10,
// not the mean of the means, 6. A step in which nothing is counted changes nothing and is no NaN.
//
// RUN: python3 -c 'import struct, sys; sys.stdout.buffer.write(struct.pack("<20f", *([2.0] + 18 * [10.0] + [0.0])))' >x.f32
// RUN: python3 -c 'import struct, sys; sys.stdout.buffer.write(struct.pack("<20i", *([1] + 9 * [-1] + 9 * [1] + [-1])))' >y.i32
// RUN: python3 -c 'import struct, sys; sys.stdout.buffer.write(struct.pack("<20i", *(20 * [-1])))' >none.i32
// RUN: for s in '1 gpipe' '2 gpipe' '2 one_f_one_b' '2 interleaved_1f1b'; do set -- $s; %ppc run %s --ranks=$1 --schedule=$2 --data x=x.f32 --data y=y.i32 --json --save-gradients=$2$1.gr >$2$1.json || exit 1; done
// RUN: for f in *.gr; do python3 %root/testdata/compare.py elements $f 1e-6 w=9.2 v=9.2 || exit 1; done
// RUN: for f in *.json; do python3 %root/testdata/compare.py step $f 1 1e-6 loss=9.2 || exit 1; done
// RUN: python3 %root/testdata/compare.py same *.json
// RUN: %ppc run %s --ranks=2 --data x=x.f32 --data y=none.i32 --json --save=none.st >none.json 2>none.err
// RUN: python3 %root/testdata/compare.py elements none.st 0 w=1 v=1
// RUN: ! grep -iE 'nan|inf' none.json
// RUN: grep -i 'warning' none.err
use optim; use schedules;

module net() {
  param w: [1] = ones;
  param v: [1] = ones;
  fn (x: [b, n], y: i32[b, n]) {
    let scaled = x * w;
    stage_end;
    let counted = y >= 0;
    return sum(select(counted, scaled * v, 0.0)), sum(cast(counted, i32));
  }
}

train {
  model     net = net();
  batch     microbatch = 1, microbatches = 2;
  data      x = f32_file("x.f32", 10);
  data      y = i32_file("y.i32", 10);
  loss      net(x, y);
  ranks     1;
  schedule  one_f_one_b;
  optimizer sgd(lr = 0.5);
  steps     1;
}
