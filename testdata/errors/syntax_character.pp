// Characters that no word starts with.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
const a = 1 # 2;
const b = 3 $ 4;

// CHECK: syntax_character.pp:4:13: error: unexpected character '#'
// CHECK: syntax_character.pp:4:13: note: a comment starts with //
// CHECK: syntax_character.pp:5:13: error: unexpected character '$'
