// Lists are indexed from 0.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
use nn; use optim; use schedules;

module net(d) {
  param w: [d] = ones;
  fn (x: [b, d]) {
    let l = [1, 2, 3];
    let a = l[3];
    let c = l[-1];
    l[7] = 1;
    let e = l[0, 1];
    let f = l[1..5];
    let g = 5[0];
    let h = l["a"];
    let k = pop_front([]);
    return mean(x * w);
  }
}

train {
  model     net = net(8);
  batch     microbatch = 4, microbatches = 2;
  data      x = synthetic(8);
  loss      net(x);
  ranks     1;
  schedule  gpipe;
  optimizer sgd(lr = constant(0.1));
  steps     1;
}

// CHECK: value_index.pp:10:14: error: index 3 is not within a list of 3
// CHECK: value_index.pp:26:13: note: in the call of 'net' here
// CHECK: value_index.pp:11:14: error: index -1 is not within a list of 3
// CHECK: value_index.pp:26:13: note: in the call of 'net' here
// CHECK: value_index.pp:12:6: error: index 7 is not within a list of 3
// CHECK: value_index.pp:26:13: note: in the call of 'net' here
// CHECK: value_index.pp:13:14: error: a list takes one index, as in l[i][j]
// CHECK: value_index.pp:26:13: note: in the call of 'net' here
// CHECK: value_index.pp:14:14: error: 1..5 is not within a list of 3
// CHECK: value_index.pp:26:13: note: in the call of 'net' here
// CHECK: value_index.pp:15:14: error: the int 5 has no elements
// CHECK: value_index.pp:26:13: note: in the call of 'net' here
// CHECK: value_index.pp:16:15: error: an index needs an int, not a string
// CHECK: value_index.pp:26:13: note: in the call of 'net' here
// CHECK: value_index.pp:17:23: error: 'pop_front' of an empty list
// CHECK: value_index.pp:26:13: note: in the call of 'net' here
