// A block that the file does not close.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
fn f(x) {
  if x { return 1;

// CHECK: syntax_brace.pp:[[@LINE+1]]:1: error: expected '}' before the end of the file
