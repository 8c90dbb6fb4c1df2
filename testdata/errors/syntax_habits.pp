// Habits from other languages.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
# a comment
fn f(a, b) {
  if a && b { return 1; }
  if a || b { return 1; }
  if !a { return 1; }
  let c = a % b;
  let d = 'text';
  let e = a ** 2;
  if a = b { return 1; }
  e++;
  return c
}

// CHECK: syntax_habits.pp:4:1: error: unexpected character '#'
// CHECK: syntax_habits.pp:4:1: note: a comment starts with //
// CHECK: syntax_habits.pp:6:8: error: unexpected character '&'
// CHECK: syntax_habits.pp:6:8: note: write 'and'
// CHECK: syntax_habits.pp:7:8: error: unexpected character '|'
// CHECK: syntax_habits.pp:7:8: note: write 'or'
// CHECK: syntax_habits.pp:8:6: error: unexpected character '!'
// CHECK: syntax_habits.pp:8:6: note: write 'not'
// CHECK: syntax_habits.pp:9:13: error: unexpected character '%'
// CHECK: syntax_habits.pp:9:13: note: mod(a, b) is the remainder
// CHECK: syntax_habits.pp:10:11: error: unexpected character '''
// CHECK: syntax_habits.pp:10:11: note: strings stand in "
// CHECK: syntax_habits.pp:11:14: error: expected an expression before '*'
// CHECK: syntax_habits.pp:12:8: error: expected '{' before '='
// CHECK: syntax_habits.pp:13:5: error: expected an expression before '+'
// CHECK: syntax_habits.pp:14:11: error: expected ';' before '}'
