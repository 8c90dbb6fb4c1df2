// RUN: %ppc check %s
// Functions are values; closures capture by reference; scopes.
use optim; use schedules;

fn power(x, n = 2, scale = n * 10) {
  let y = scale;
  for i in 0..n { y *= x; }
  return y;
}

fn pair(a, b) { return b, a; }

fn arguments() {
  require power(3) == 180 and power(3, 1) == 30 and power(3, scale = 1) == 9, "defaults";
  require power(n = 3, x = 2, scale = 1) == 8, "by name, in any order";
  let x, y = pair(1, 2);
  require x == 2 and y == 1, "several results";
}

fn closures() {
  let n = 0;
  fn count() { n += 1; return n; }
  count(); count();
  require n == 2, "assigned from a nested function";
  let add = fn (a) { return a + n; };
  n = 10;
  require add(1) == 11, "captured by reference";
  let all_fns = [];
  for i in 0..3 { append(all_fns, fn () { return i; }); }
  require all_fns[0]() == 0 and all_fns[2]() == 2, "each turn has fresh variables";
}

fn recursion() {
  fn factorial(k) { return k <= 1 ? 1 : k * factorial(k - 1); }
  require factorial(10) == 3628800, "a nested function sees itself";
  require even(10) and not even(7), "file-level names are visible in the whole file";
}

fn even(n) { return n == 0 or odd(n - 1); }
fn odd(n) { return n != 0 and even(n - 1); }

fn scopes() {
  let a = 1;
  if true {
    let a = 2;
    a += 1;
    require a == 3, "hidden";
  }
  require a == 1, "untouched";
  if true { a = 5; }
  require a == 5, "the nearest one is assigned";
}

fn control() {
  let i = 0;
  let seen = 0;
  while true {
    i += 1;
    if i == 2 { continue; } else if i > 5 { break; }
    seen += i;
  }
  require i == 6 and seen == 13, "while, continue, break, else if";
}

fn run_tests() { arguments(); closures(); recursion(); scopes(); control(); }

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
