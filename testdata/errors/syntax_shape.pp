// `..` leads, and a subscript is needed.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
fn f(x: [b, ..]) {
  return x[];
}

// CHECK: syntax_shape.pp:4:13: error: '..' can only stand first in a shape
// CHECK: syntax_shape.pp:5:11: error: expected a subscript between '[' and ']'
