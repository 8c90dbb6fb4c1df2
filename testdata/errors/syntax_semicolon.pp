// The place is where the semicolon belongs, not the next line.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
fn f(x) {
  let a = x + 1
  return a;
}

// CHECK: syntax_semicolon.pp:5:16: error: expected ';' before 'return'
