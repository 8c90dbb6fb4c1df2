// `cut` makes stages whose sizes differ by at most one, for counts that do not divide; the number of stages
// is that of the markers. (3 layers on 4 stages: testdata/errors/train_cut.pp.)
//
// RUN: %ppc check %s
// RUN: for c in '30 4' '10 3' '7 2' '62 4' '4 4' '5 1'; do set -- $c; %ppc check %s -D layers=$1 -D stages=$2 >check.txt && grep -q "$2 stage" check.txt || exit 1; done
// RUN: ! %ppc check %s -D layers=30 -D stages=4 --ranks=3 2>e
// RUN: %FileCheck --check-prefix=RANKS <e
// RANKS: cut.pp:{{.*}} error: the stages must be a multiple of the ranks
use nn; use optim; use schedules;

const layers = 7;
const stages = 2;

fn sizes(layers, stages) {
  let list = [0];
  for i in 0..layers {
    list[len(list) - 1] += 1;
    if cut(i, layers, stages) { append(list, 0); }
  }
  return list;
}
fn same(a, b) {
  let equal = len(a) == len(b);
  for i in 0..min(len(a), len(b)) { equal = equal and a[i] == b[i]; }
  return equal;
}

module net(d) {
  h[layers]: linear(d, d);
  require same(sizes(30, 4), [7, 8, 7, 8]) or same(sizes(30, 4), [8, 7, 8, 7]), "30 on 4";
  require same(sizes(10, 3), [4, 3, 3]) or same(sizes(10, 3), [3, 3, 4]) or same(sizes(10, 3), [3, 4, 3]), "10 on 3";
  require same(sizes(7, 2), [4, 3]) or same(sizes(7, 2), [3, 4]), "7 on 2";
  require same(sort(sizes(62, 4)), [15, 15, 16, 16]), "62 on 4";
  require same(sizes(4, 4), [1, 1, 1, 1]), "4 on 4";
  fn (x: [b, d]) {
    for i in 0..layers {
      x = h[i](x);
      if cut(i, layers, stages) { stage_end; }
    }
    return mean(x * x);
  }
}

train {
  model     net = net(4);
  batch     microbatch = 2, microbatches = 2;
  data      x = synthetic(4);
  loss      net(x);
  ranks     1;
  schedule  one_f_one_b;
  optimizer sgd(lr = 0.1);
  steps     1;
}
