// Loss scales, and what goes with a dynamic one.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
// RUN: bad() { sed "s/dynamic;/$1;/; s/nonfinite  stop;//" %s >bad.pp; ! %ppc check bad.pp 2>bad.err && grep -qF "bad.pp:$2" bad.err || { cat bad.err; return 1; }; }; bad 0 "23:14: error: a loss scale is a number from 2^-96 to 2^96, not 0.0" && bad -1024.0 "23:14: error: a loss scale is a number from 2^-96 to 2^96, not -1024.0" && bad 1e30 "23:14: error: a loss scale is" && bad infinity "23:14: error: a loss scale is" && bad '"large"' "23:14: error: 'loss_scale' is a number, dynamic or dynamic(…), not a string" && bad skip "23:14: error: 'loss_scale' is a number, dynamic or dynamic(…), not the word 'skip'" && bad "dynamic(initial = 0)" "23:22: error: a loss scale is a number from 2^-96 to 2^96, not 0.0" && bad "dynamic(interval = 0)" "23:22: error: 'interval' must be at least 1, not 0" && bad "dynamic(interval = 1.5)" "23:22: error: 'dynamic' needs an int for the steps between growths, not the float 1.5" && bad "dynamic(growth = 1)" "23:22: error: 'growth' must be above 1, not 1.0" && bad "dynamic(growth = infinity)" "23:22: error: 'growth' must be above 1" && bad "dynamic(backoff = 1)" "23:22: error: 'backoff' must be between 0 and 1, not 1.0" && bad "dynamic(backoff = 0)" "23:22: error: 'backoff' must be between 0 and 1, not 0.0" && bad "dynamic(growth = true)" "23:22: error: 'growth' of a loss scale is a number, not the bool true" && bad "dynamic(512)" "23:22: error: 'dynamic' takes 0 arguments by place, here are 1" && bad "dynamic(growth_factor = 2)" "23:22: error: 'dynamic' has no argument 'growth_factor'"
// RUN: sed 's/nonfinite  stop;//' %s >fine.pp && %ppc check fine.pp && sed 's/dynamic;/1024;/' %s >fine.pp && %ppc check fine.pp && sed 's/stop;/skip;/' %s >fine.pp && %ppc check fine.pp
use nn; use optim; use schedules;

module net(d) {
  param w: [d] = ones;
  fn (x: [b, d]) { return mean(x * w); }
}

train {
  model      net = net(8);
  batch      microbatch = 4, microbatches = 2;
  data       x = synthetic(8);
  loss       net(x);
  ranks      1;
  schedule   gpipe;
  optimizer  sgd(lr = constant(0.1));
  steps      1;
  nonfinite  stop;
  loss_scale dynamic;
}

// CHECK: train_loss_scale.pp:22:14: error: a dynamic loss scale needs 'nonfinite skip'
// CHECK: train_loss_scale.pp:23:14: note: it is asked for here
