// Reserved words are no names.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
fn f() {
  let for = 1;
  let return = 2;
}
module while() { }

// CHECK: syntax_reserved.pp:5:7: error: expected a name, but 'for' is a reserved word
// CHECK: syntax_reserved.pp:6:7: error: expected a name, but 'return' is a reserved word
// CHECK: syntax_reserved.pp:8:8: error: expected a name, but 'while' is a reserved word
