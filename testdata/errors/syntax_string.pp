// A string ends on its line.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
const name = "unfinished;
const other = 1;

// CHECK: syntax_string.pp:4:14: error: this string is not closed
