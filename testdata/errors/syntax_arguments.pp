// Arguments by place come first.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
fn f(a, b) { return a + b; }
const c = f(b = 1, 2);
const d = f(a = 1, a = 2);

// CHECK: syntax_arguments.pp:5:20: error: an argument by place can't follow one by name
// CHECK: syntax_arguments.pp:5:13: note: 'b' is given by name
// CHECK: syntax_arguments.pp:6:20: error: the argument 'a' is given twice
// CHECK: syntax_arguments.pp:6:13: note: it is given here first
