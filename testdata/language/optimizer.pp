// RUN: %ppc check %s
// An optimizer with two states, compile-time facts of the parameter, and rates that are run-time
// expressions of the step.
use nn; use schedules;

optimizer lion(lr, beta1 = 0.9, beta2 = 0.99, decay = fn (p) { return rank(p) >= 2; }) {
  state m = zeros;
  state count = zeros;
  fn (p, g, step) {
    let update = beta1 * m + (1 - beta1) * g;
    m = beta2 * m + (1 - beta2) * g;
    count = count + 1;
    let direction = select(update > 0.0, 1.0, select(update < 0.0, -1.0, 0.0));
    let shrink = decay(p) and name(p) != "b.weight" ? 0.1 : 0.0;
    require len(shape(p)) == rank(p), "rank and shape agree";
    return p - lr(step) * (direction + shrink * p);
  }
}

fn stairs(start) {
  return fn (step) { return select(step > 10, start / 2, start) * min(1.0, step / 5); };
}

fn halved_over(limit) { return fn (norm) { return select(norm > limit, 0.5, 1.0); }; }

module net(d) {
  a: linear(d, d);
  b: linear(d, d);
  fn (x: [n, d]) { return mean(b(a(x))); }
}

train {
  model     net = net(4);
  batch     microbatch = 2, microbatches = 4;
  data      x = synthetic(4);
  loss      net(x);
  ranks     1;
  schedule  gpipe;
  optimizer lion(lr = stairs(1e-3));
  clip      halved_over(2.0);
  steps     1;
  nonfinite skip;
}
