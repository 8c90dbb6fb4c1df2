// An index outside its table, in a step that nobody looks at: told with its line, step, task, stage and microbatch.
// RUN: command -v nvcc >/dev/null || { echo 'skipped: nvcc is not installed'; exit 0; }; flock %root/build/check.lock make -s -C %root check-libs >/dev/null && python3 -c 'from array import array; rows = array("i", [0, 1, 2, 3] * 12); rows[26] = 7; rows.tofile(open("rows", "wb"))' && %ppc compile %s --target=cuda -o gpu && ln -s %root/build/check gpu/check && make -s -C gpu ARCH=80 all kernels.host.so >log && PPC_CHECK=1 gpu/launch.sh --data=r=rows --log-every=3 >out 2>err; test $? = 4 && %FileCheck <err && ! grep step out
// CHECK: rank 1: nn.pp:{{[0-9]+}}: index 7 at place 2 is outside 0 … 4, in step 2, stage_1_fwd, stage 1, microbatch 2
use nn;
use optim;
use schedules;

module picks() {
  first: linear(4, 4);
  table: embedding(5, 4);
  fn (x: [b, 4], rows: i32[b, 4]) {
    let y = first(x);
    stage_end;
    let zero = cast(x * 0.0, i32); // so that the rows are no data, which are checked before
    return mean((y + sum(table(rows + zero), axis = 1)) * y);
  }
}

train {
  model     net = picks();
  batch     microbatch = 1, microbatches = 4;
  data      x = synthetic(4);
  data      r = i32_file("rows", 4);
  loss      net(x, r);
  ranks     2;
  schedule  one_f_one_b;
  optimizer sgd(lr = constant(0.1));
  steps     3;
}
