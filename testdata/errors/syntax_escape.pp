// Escapes are few.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
const a = "tab \t, bell \a";

// CHECK: syntax_escape.pp:4:25: error: unknown escape '\a' (there are \n \t \" \\)
