// A comment that nothing closes.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
const a = 1;
/* the rest of the file
const b = 2;

// CHECK: syntax_comment.pp:5:1: error: this comment is not closed
