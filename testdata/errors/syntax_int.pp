// Ints have 64 bits, floats end at 1.8e308.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
const a = 9223372036854775808;
const b = 1e999;

// CHECK: syntax_int.pp:4:11: error: the int 9223372036854775808 is out of range (it has 64 bits)
// CHECK: syntax_int.pp:5:11: error: the float 1e999 is out of range
