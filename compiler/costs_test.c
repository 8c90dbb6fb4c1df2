/* --cost: what is read, what is refused with which words, what a task then costs. */
#include "compiler/costs.h"

#include <stdio.h>
#include <string.h>

static Arena *arena;
static int failures;

static void result(bool fine, const char *name) {
  printf("%s %s\n", fine ? "ok" : "FAIL", name);
  failures += !fine;
}

static bool refused(const char *text, const char *why) {
  StatedCosts costs = {0};
  const char *error = costs_parse(arena, text, &costs);
  if (error && strstr(error, why)) return true;
  printf("%s: %s, not %s\n", text, error ? error : "accepted", why);
  return false;
}

static void try_values(void) {
  StatedCosts costs = {0};
  double pair;
  result(costs_of_task(&costs, PP_FWD, 3) == 1 && costs_of_task(&costs, PP_BWD, 3) == 2 && costs_of_transfer(&costs, 0) == 0 &&
             !costs_of_pair(&costs, 0, &pair) && costs_of_task(&costs, PP_UPDATE, 0) == 0,
         "what isn't stated");
  result(!costs_parse(arena, "F=1.5,I=[2,3],transfer=0.25,pair=4", &costs), "values and lists");
  result(costs_of_task(&costs, PP_FWD, 1) == 1.5 && costs_of_task(&costs, PP_BWD_INPUT, 1) == 3 &&
             costs_of_task(&costs, PP_BWD, 0) == 3 && costs_of_transfer(&costs, 1) == 0.25 &&
             costs_of_pair(&costs, 1, &pair) && pair == 4,
         "a whole backward is the sum of its halves");
  result(!costs_parse(arena, "B=[7,8]", &costs) && costs_of_task(&costs, PP_BWD, 1) == 8, "unless it is stated");
  result(!costs_check_stages(arena, &costs, 2), "a list has a value for each stage");
  const char *error = costs_check_stages(arena, &costs, 3);
  result(error && strstr(error, "'I' has 2 values, but there are 3 stages"), "a list of another length");
}

static void try_errors(void) {
  result(refused("", "'' has no cost") && refused("x=1", "'x' has no cost") && refused("F=1,", "'' has no cost"), "unknown keys");
  result(refused("transfr=1", "did you mean 'transfer'?"), "a key that is misspelt");
  result(refused("F", "expected F=VALUE") && refused("F=", "a value is missing") && refused("F=[]", "a value is missing"),
         "values that are missing");
  result(refused("F=x", "'x' is no number") && refused("F=nan", "no number") && refused("F=inf", "no number") &&
             refused("F=0x10", "no number") && refused("F=1 ", "no number"),
         "what is no number");
  result(refused("F=-1", "'-1' is no cost") && refused("F=1e16", "is no cost") && refused("F=1e999", "no number"), "what is out of range");
  result(refused("F=[1,2", "a list ends with ']'") && refused("F=[1]2", "expected ','"), "ends of lists");
  result(refused("F=1,F=2", "'F' is stated twice"), "a key twice");
}

int main(void) {
  arena = arena_create();
  try_values();
  try_errors();
  arena_destroy(arena);
  return failures > 0;
}
