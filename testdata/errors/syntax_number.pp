// A number that runs into a word.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
const a = 12abc;
const b = 1.5.2;

// CHECK: syntax_number.pp:4:11: error: '12abc' is not a number
// CHECK: syntax_number.pp:5:15: error: expected a name before '2'
