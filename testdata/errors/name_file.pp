// A file that does not exist, and one with a near name.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
use nm;
use nothing_like_it;

// CHECK: name_file.pp:4:5: error: there is no file '{{.*}}nm.pp' to use: No such file or directory
// CHECK: name_file.pp:4:5: note: the library has 'nn'
// CHECK: name_file.pp:5:5: error: there is no file '{{.*}}nothing_like_it.pp' to use: No such file or directory
