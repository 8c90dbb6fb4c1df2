// The shape of an argument names sizes.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
fn f(x: [q, g]) { return x; }
fn g() { return 1; }

// CHECK: name_builtin.pp:4:13: error: 'g' in a shape must be a size
// CHECK: name_builtin.pp:5:4: note: it is declared here
