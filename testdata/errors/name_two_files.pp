// A name of two used files is an error where it is used.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
use name_two_files_a; use name_two_files_b;

const fine = only_a();
const here = both();

// CHECK: name_two_files.pp:7:14: error: 'both' is declared by two used files
// CHECK: name_two_files_a.pp:3:4: note: here
// CHECK: name_two_files_b.pp:2:4: note: and here
