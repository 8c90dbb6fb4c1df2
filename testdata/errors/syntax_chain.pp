// Comparisons do not chain.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
fn f(a, b, c) { return a < b < c; }

// CHECK: syntax_chain.pp:4:30: error: comparisons can't be chained
// CHECK: syntax_chain.pp:4:26: note: join two comparisons with 'and'
