// Two functions without a name.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
module m(d) {
  fn (x) { return x; }
  fn (y) { return y; }
}

// CHECK: module_nameless.pp:6:3: error: a second function without a name
// CHECK: module_nameless.pp:5:3: note: the first is here
