// Statements out of their place.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
fn f(x) {
  param w: [3] = ones;
  stage_end;
  break;
}
module m() {
  return 1;
  while true { param p: [1]; }
}
schedule s(ranks) { fwd(0, 0); }

// CHECK: syntax_place.pp:5:3: error: 'param' can only stand in a module, outside its functions
// CHECK: syntax_place.pp:7:3: error: 'break' can only stand in a loop
// CHECK: syntax_place.pp:10:3: error: 'return' can only stand in a function
// CHECK: syntax_place.pp:13:10: error: schedule 's' has no rank block
