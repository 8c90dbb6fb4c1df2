// What a file consists of.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
let a = 1;
const b = 2;
b = 3;

// CHECK: syntax_top.pp:4:1: error: expected a declaration (use, const, fn, module, schedule, optimizer or train) before 'let'
// CHECK: syntax_top.pp:6:1: error: expected a declaration (use, const, fn, module, schedule, optimizer or train) before 'b'
