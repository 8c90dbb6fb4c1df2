// An optimizer whose state is made by a matrix product. A product has no guard against skipped steps: what it makes
// goes to workspace, and a guarded kernel copies it.
// RUN: %ppc compile %s --target=cuda -o out && cat out/stage_0.c | %FileCheck
// RUN: grep -A6 'void update_f32_16(' out/kernels.cu | grep -q 'if (control\[PP_CONTROL_APPLY\] == 0) return;'
// The CPU leaves the whole task out, and needs no copy of the state.
// RUN: %ppc compile %s -o cpu && ! sed -n '/void stage_0_update/,$p' cpu/stage_0.c | grep -q 'm_place'
// A skipped step runs the product all the same: what a guarded kernel would have made for it is zero.
// RUN: %root/testdata/cuda/run.py %s --seeds=0:3 && %root/testdata/cuda/run.py %s --seeds=0:3 -D loss_scale=1e38
// RUN: %ppc run %s -D loss_scale=1e38 2>&1 | grep -q 'step 1 skipped'
// CHECK: void stage_0_update(const pp_call *c) {
// CHECK: pp_device_clear(c, workspace, {{[0-9]+}});
// CHECK: pp_product_run(c, product_4x4x4_nn, {{[a-z_]+}}, w, m, 0);
// CHECK: launch_update_f32_16(c, m, m_place);

use nn;
use schedules;
use optim;

const loss_scale = 1.0;

module model() {
  param w: [4, 4] = normal(0.0, 1.0);
  fn (x: [b, 4]) { return mean_squared_error(x @ w, x); }
}

optimizer turned(lr) {
  state m = zeros;
  fn (p, g, step) {
    m = (0.5 * g) @ p;
    return p - lr(step) * g;
  }
}

train {
  model     net = model();
  batch     microbatch = 2, microbatches = 2;
  data      x = synthetic(4);
  loss      net(cast(x, real)) * loss_scale * loss_scale;
  ranks     1;
  schedule  one_f_one_b;
  optimizer turned(lr = constant(0.01));
  nonfinite skip;
  steps     2;
  seed      1;
}
