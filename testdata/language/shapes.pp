// RUN: %ppc check %s
// Shapes: patterns, broadcasting, slices, and what the built-in functions give.
use optim; use schedules;

const five = 5;

fn is_shape(x, wanted) {
  require len(shape(x)) == len(wanted), "the rank";
  for i in 0..len(wanted) { require shape(x)[i] == wanted[i], "an axis"; }
}

fn last(x: [.., n]) { return n; }
fn both(x: [.., n], y: [.., m]) { return n + m; }
fn fixed(x: i32[b, five]) { return b; }
fn twice(x: [.., n], k) { return reshape(x, [.., k, n / k]); }

fn tensors() {
  let x = reshape(cast(iota(24), real), [2, 2, 6]);
  is_shape(x, [2, 2, 6]);
  require last(x) == 6 and both(x, x[.., 1..4]) == 9, "patterns bind; both leading axes are one";
  require fixed(reshape(iota(15), [3, 5])) == 3, "a const is compared";
  is_shape(twice(x, 3), [2, 2, 3, 2]);
  is_shape(x[.., 1..4], [2, 2, 3]);
  is_shape(x[0], [2, 6]);
  is_shape(x[0, 1..2], [1, 6]);
  is_shape(x[.., 0], [2, 2]);
  is_shape(sum(x), []);
  is_shape(sum(x, axis = -1), [2, 2]);
  is_shape(mean(x, axis = [0, 1], keep = true), [1, 1, 6]);
  is_shape(max(x, axis = 1), [2, 6]);
  is_shape(concat([x, x]), [2, 2, 12]);
  is_shape(concat([x, x], axis = 0), [4, 2, 6]);
  is_shape(pad(x, 1, 1, 2), [2, 5, 6]);
  is_shape(transpose(x), [2, 6, 2]);
  is_shape(permute(x, [2, 0, 1]), [6, 2, 2]);
  is_shape(reshape(x, [4, -1]), [4, 6]);
  is_shape(x @ transpose(x), [2, 2, 2]);
  is_shape(x + x[0], [2, 2, 6]);
  is_shape(x * reshape(cast(iota(2), real), [2, 1]), [2, 2, 6]);
  is_shape(gather(reshape(x, [4, 6]), reshape(iota(4), [2, 2])), [2, 2, 6]);
  is_shape(select(x > 0.0, x, 0.0), [2, 2, 6]);
  is_shape(random([3, 4]), [3, 4]);
  let q = reshape(x, [1, 2, 2, 6]);
  is_shape(attention(q, q, q, causal = true), [1, 2, 2, 6]);
}

fn dtypes() {
  let x = cast(iota(3), real);
  require dtype(x) == real and dtype(iota(3)) == i32, "dtype";
  require dtype(x == x) == bool and dtype(cast(x, i32)) == i32, "of results";
  require dtype(x * 2) == real and dtype(x + 0.5) == real, "numbers take the tensor's dtype";
}

fn run_tests() { tensors(); dtypes(); }

module net(d) {
  param weight: [d] = ones;
  fn (x: [b, d]) {
    run_tests();
    return mean(x * weight);
  }
}

train {
  model     net = net(4);
  batch     microbatch = 2, microbatches = 2;
  data      x = synthetic(4);
  loss      net(x);
  ranks     1;
  schedule  gpipe;
  optimizer sgd(lr = constant(0.1));
  steps     1;
}
