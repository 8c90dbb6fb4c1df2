// An optimizer whose state is made by a matrix product. A product has no guard against skipped steps: what it makes
// goes to workspace, and a guarded kernel copies it.
// RUN: %ppc compile %s --target=cuda -o out && cat out/stage_0.c | %FileCheck
// RUN: grep -A6 'void update_f32_16(' out/kernels.cu | grep -q 'if (control\[PP_CONTROL_APPLY\] == 0) return;'
// The CPU leaves the whole task out, and needs no copy of the state.
// RUN: %ppc compile %s -o cpu && ! sed -n '/void stage_0_update/,$p' cpu/stage_0.c | grep -q 'm_place'
// CHECK: void stage_0_update(const pp_call *c) {
// CHECK: pp_product_run(c, product_4x4x4_nn, mul, w, m, 0);
// CHECK: launch_update_f32_16(c, m, m_place);

use nn;
use schedules;
use optim;

module model() {
  param w: [4, 4] = normal(0.0, 1.0);
  fn (x: [b, 4]) { return mean_squared_error(x @ w, x); }
}

optimizer turned(lr) {
  state m = zeros;
  fn (p, g, step) {
    m = g @ p;
    return p - lr(step) * g;
  }
}

train {
  model     net = model();
  batch     microbatch = 2, microbatches = 2;
  data      x = synthetic(4);
  loss      net(cast(x, real));
  ranks     1;
  schedule  one_f_one_b;
  optimizer turned(lr = constant(0.01));
  steps     2;
  seed      1;
}
