// What could go on is named.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
fn f(x) {
  return (x + 1;
}
fn g(x) { return x[1; }

// CHECK: syntax_parenthesis.pp:5:16: error: expected ')' before ';'
// CHECK: syntax_parenthesis.pp:7:21: error: expected ',' or ']' before ';'
