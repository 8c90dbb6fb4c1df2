// RUN: %ppc check %s
// Lists are references; ranges are half-open lists.
use optim; use schedules;

fn basics() {
  let l = [];
  require len(l) == 0, "empty";
  append(l, 3); append(l, 1); append(l, 2);
  require len(l) == 3 and l[0] == 3 and l[2] == 2, "append";
  l[1] = 7;
  l[1] += 1;
  require l[1] == 8, "elements are assigned";
  require pop_front(l) == 3 and len(l) == 2 and l[0] == 8, "pop_front";
  let other = l;
  append(other, 5);
  require len(l) == 3, "a list is a reference";
  let mine = copy(l);
  append(mine, 6);
  require len(l) == 3 and len(mine) == 4, "a copy is none";
}

fn nested() {
  let grid = [[1, 2], [3, 4]];
  grid[1][0] = 9;
  require grid[1][0] == 9 and grid[0][1] == 2, "nested";
  require is_list(grid[0]) and not is_list(grid[0][1]) and not is_list("ab"), "is_list";
}

fn ranges() {
  require len(0..5) == 5 and len(5..0) == 0 and len(2..2) == 0, "half open, empty when reversed";
  let r = reverse(0..3);
  require r[0] == 2 and r[2] == 0, "reverse";
  let sum_of = 0;
  for i in 1..4 { sum_of += i; }
  require sum_of == 6, "for over a range";
  for i in [10, 20] { sum_of += i; }
  require sum_of == 36, "for over a list";
}

fn sorting() {
  let s = sort([3, 1, 2]);
  require s[0] == 1 and s[1] == 2 and s[2] == 3, "ascending";
  let d = sort([3, 1, 2], less = fn (a, b) { return a > b; });
  require d[0] == 3 and d[2] == 1, "descending";
  let pairs = sort([[1, 0], [0, 1], [1, 2], [0, 3]], fn (a, b) { return a[0] < b[0]; });
  require pairs[0][1] == 1 and pairs[1][1] == 3 and pairs[2][1] == 0 and pairs[3][1] == 2, "stable";
}

fn run_tests() { basics(); nested(); ranges(); sorting(); }

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
