// Errors in several places of one file.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
const a = ;
fn f(x) { return x +; }
fn g(x { return x; }
const d = 1

// CHECK: syntax_several.pp:4:11: error: expected an expression before ';'
// CHECK: syntax_several.pp:5:21: error: expected an expression before ';'
// CHECK: syntax_several.pp:6:8: error: expected '=', ')', ',' or ':' before '{'
// CHECK: syntax_several.pp:7:12: error: expected ';' before the end of the file
