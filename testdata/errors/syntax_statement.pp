// A statement does something.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
fn f(a, b) {
  a + b;
  a == 1;
  f(a, b) = 2;
}

// CHECK: syntax_statement.pp:5:5: error: this statement has no effect
// CHECK: syntax_statement.pp:6:5: error: this statement has no effect
// CHECK: syntax_statement.pp:7:3: error: only a name or an element of a list can be assigned
