// RUN: %ppc check %s
// Ints, floats, strings and bools at compile time.
use optim; use schedules;

const three = 3;

fn ints() {
  require 7 / 7 == 1 and 6 / three == 2, "exact division";
  require div(7, 2) == 3 and div(-7, 2) == -4, "div rounds down";
  require mod(7, 2) == 1 and mod(-7, 2) == 1, "mod follows div";
  require 2 + 3 * 4 == 14 and (2 + 3) * 4 == 20, "products bind tighter";
  require -2 * -3 == 6 and 10 - 3 - 2 == 5 and 24 / 4 / 2 == 3, "left to right";
  require min(3, 5) == 3 and max(3, 5) == 5 and max(-1, -2) == -1, "min and max";
  require 9223372036854775807 > 0, "64 bits";
}

fn floats() {
  require 1 / 2.0 == 0.5 and 1 + 0.5 == 1.5, "an int meets a float as float";
  require 1e-3 == 0.001 and 2.5e+1 == 25.0, "exponents";
  require infinity > 1e300 and -infinity < 0, "infinity";
  require sqrt(16.0) == 4.0 and pow(2.0, 10) == 1024.0 and exp(0.0) == 1.0, "functions";
  require log(1.0) == 0.0 and sin(0.0) == 0.0 and cos(0.0) == 1.0, "more functions";
}

fn bools() {
  require true and not false, "not";
  require not 1 == 2, "not is looser than ==";
  require true or 1 / 0 == 1, "or is lazy";
  require not (false and 1 / 0 == 1), "and is lazy";
  require (true ? 1 : 1 / 0) == 1, "? : is lazy";
  require (false ? 1 : false ? 2 : 3) == 3, "? : goes right";
  require 1 != 2 and 1 <= 1 and 2 >= 1 and 1 < 2 and 2 > 1, "comparisons";
}

fn strings() {
  require "a" == "a" and "a" != "b", "equal strings";
  require "tab\t" != "tab" and "\"" == "\"", "escapes";
}

fn run_tests() { ints(); floats(); bools(); strings(); }

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
