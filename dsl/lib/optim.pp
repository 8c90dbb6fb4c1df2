// Optimizers, learning rates and gradient clipping.
//
// An optimizer's function gets a parameter, its gradient and the step, a run-time scalar from 1. A
// rate is a function of that step.

// m = momentum m + g, p - lr m
optimizer sgd(lr, momentum = 0.0) {
  state m = zeros;
  fn (p, g, step) {
    m = momentum * m + g;
    return p - lr(step) * m;
  }
}

// Adam with decoupled weight decay (Loshchilov and Hutter, arXiv 1711.05101). Vectors (biases, norms)
// are not decayed unless `decay` says so.
optimizer adamw(lr, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0.0,
    decay = fn (p) { return rank(p) >= 2; }) {
  state m, v = zeros;
  fn (p, g, step) {
    m = beta1 * m + (1 - beta1) * g;
    v = beta2 * v + (1 - beta2) * g * g;
    let update = (m / (1 - pow(beta1, step))) / (sqrt(v / (1 - pow(beta2, step))) + eps);
    return p - lr(step) * (update + (decay(p) ? weight_decay : 0.0) * p);
  }
}

// --- rates ---

fn constant(x) {
  return fn (step) { return x; };
}

// The rate rises to `peak` over `warmup` steps, then falls to `floor` as shape(q) falls from 1 to 0,
// q going from 0 to 1 at step `total`.
fn warmed_up(peak, warmup, total, floor, shape) {
  return fn (step) {
    let q = min(1.0, (step - warmup) / max(1, total - warmup));
    let falling = floor + (peak - floor) * shape(q);
    return select(step <= warmup, peak * step / max(1, warmup), falling);
  };
}

fn linear_decay(peak, warmup, total, floor = 0.0) {
  return warmed_up(peak, warmup, total, floor, fn (q) { return 1.0 - q; });
}

fn cosine(peak, warmup, total, floor = 0.0) {
  return warmed_up(peak, warmup, total, floor,
      fn (q) { return (1.0 + cos(3.141592653589793 * q)) / 2.0; });
}

// --- clipping ---

// A function from the norm of all gradients to the factor that they are multiplied by.
fn global_norm(limit) {
  require limit > 0.0, "the limit of global_norm must be positive";
  return fn (norm) { return min(1.0, limit / (norm + 1e-6)); };
}
