// Two things of one name in a file.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
fn f() { return 1; }
const f = 2;

// CHECK: name_item.pp:5:7: error: 'f' is declared twice in this file
// CHECK: name_item.pp:4:4: note: it is declared here first
