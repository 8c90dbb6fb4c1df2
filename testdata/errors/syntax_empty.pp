// A file without `train` has nothing to compile.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
const a = 1;

// CHECK: syntax_empty.pp:1:1: error: this file has no 'train { … }': it can only be used by others
