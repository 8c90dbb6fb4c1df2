// Values that cross stages as reshapes of one another: sent and kept, passed on, chained, received twice.
//
// RUN: for o in "--ranks=1" "--ranks=3" "--ranks=6 --schedule=zb_h1" "--ranks=3 --schedule=vshape" "--ranks=2 --schedule=halves" "--ranks=3 --schedule=interleaved_1f1b"; do %ppc compile %s $o -o %d/out 2>/dev/null && python3 %p/lives.py %d/out || exit 1; done
// RUN: %ppc run %s --ranks=1 --json >%d/1.json
// RUN: %ppc run %s --ranks=6 --schedule=zb_h1 --json >%d/6.json
// RUN: %ppc run %s --ranks=2 --schedule=mixed --no-fuse --json >%d/2.json
// RUN: python3 %root/testdata/compare.py same %d/1.json %d/6.json %d/2.json
use nn; use optim; use schedules; use own;
module net() {
  param w: [6, 6] = normal(0.0, 0.4);
  fn (x: [b, 12]) {
    let a = reshape(cast(x, real), [b, 2, 6]) @ w;
    stage_end;
    let flat = reshape(a, [b, 12]);  // passed on, nothing else
    let n = tanh(a);
    stage_end;
    let c = tanh(flat) * reshape(n, [b, 12]);  // kept for the backward, sent in two shapes
    let c4 = reshape(c, [b, 4, 3]);
    let c2 = reshape(c4, [b, 2, 6]);
    stage_end;
    let d = c2 @ transpose(w) + reshape(c, [b, 2, 6]);
    let i = cast(d > 0.0, i32);
    stage_end;
    let e = sum(c4, axis = [1, 2]) + sum(flat, axis = 1)
        + sum(reshape(d, [b, 12]), axis = 1) * cast(sum(reshape(i, [b, 12]), axis = 1), real);
    output e = concat(reshape(e, [b, 1]));
    stage_end;
    return mean(e * e) + mean(reshape(c, [2 * b, 6]) @ w);
  }
}
train {
  model     m = net();
  batch     microbatch = 3, microbatches = 5;
  data      x = synthetic(12);
  loss      m(x);
  ranks     3;
  schedule  one_f_one_b;
  optimizer sgd(lr = constant(0.001));
  steps     3;
  seed      5;
}
