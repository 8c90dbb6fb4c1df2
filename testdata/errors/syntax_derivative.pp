// A derivative names results, then adjoints.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
fn f(x) { return x; } derivative (y) { return y; }

// CHECK: syntax_derivative.pp:4:23: error: a derivative names the results, then as many adjoints
