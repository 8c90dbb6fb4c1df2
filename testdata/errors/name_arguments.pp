// Two arguments of one name.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
fn f(a, b, a) { return a; }
module m(d, d) { }

// CHECK: name_arguments.pp:4:12: error: 'a' is declared twice in this block
// CHECK: name_arguments.pp:4:6: note: it is declared here first
// CHECK: name_arguments.pp:5:13: error: 'd' is declared twice in this block
// CHECK: name_arguments.pp:5:10: note: it is declared here first
