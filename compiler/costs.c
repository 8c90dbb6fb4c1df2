/* Parses --cost and answers what a task costs. In: "F=1,I=1,W=[1,2,1],transfer=0.05". A value stands for all
 * stages, a list has one for each. Times have no unit: the result has that of what was stated. */
#include "compiler/costs.h"

#include <string.h>

#include "compiler/base/str.h"
#include "compiler/base/vec.h"

static const char *const key_names[] = {"F", "I", "W", "B", "transfer", "pair"};
_Static_assert(sizeof key_names / sizeof *key_names == COST_KEY_COUNT, "one name per key");

static const double max_cost = 1e15;

const char *costs_key_name(CostKey key) { return key_names[key]; }

static int find_key(const char *text, size_t n) {
  for (int k = 0; k < COST_KEY_COUNT; k++)
    if (strlen(key_names[k]) == n && memcmp(key_names[k], text, n) == 0) return k;
  return -1;
}

/* The number in text[0 … n), or why it is none. */
static const char *parse_number(Arena *arena, const char *text, size_t n, double *out) {
  const char *word = arena_strndup(arena, text, n);
  if (!n) return "a value is missing";
  bool digits = word[strspn(word, "0123456789.eE+-")] == 0;
  if (!digits || !str_to_double(word, out)) return arena_printf(arena, "'%s' is no number", word);
  if (!(*out >= 0 && *out <= max_cost)) return arena_printf(arena, "'%s' is no cost: from 0 to %g", word, max_cost);
  return NULL;
}

/* "1.5" or "[1,2,3]"; *at moves behind it. */
static const char *parse_list(Arena *arena, const char **at, CostList *out) {
  VEC(double) values = {0};
  bool list = **at == '[';
  const char *p = *at + list;
  for (;;) {
    size_t n = strcspn(p, list ? ",]" : ",");
    double value;
    const char *error = parse_number(arena, p, n, &value);
    if (error) return error;
    VEC_PUSH(arena, &values, value);
    p += n;
    if (!list || *p != ',') break;
    p++;
  }
  if (list && *p++ != ']') return "a list ends with ']'";
  *at = p;
  *out = (CostList){values.n, values.at};
  return NULL;
}

static const char *unknown_key(Arena *arena, const char *text, size_t n) {
  StrGuess guess = str_guess_start(arena_strndup(arena, text, n));
  for (int k = 0; k < COST_KEY_COUNT; k++) str_guess_try(&guess, key_names[k]);
  if (guess.best && n > 1) return arena_printf(arena, "'%s' has no cost; did you mean '%s'?", guess.wanted, guess.best);
  return arena_printf(arena, "'%s' has no cost; F, I, W, B, transfer and pair have", guess.wanted);
}

const char *costs_parse(Arena *arena, const char *text, StatedCosts *costs) {
  const char *p = text;
  for (;;) {
    size_t n = strcspn(p, "=,");
    int key = find_key(p, n);
    if (key < 0) return unknown_key(arena, p, n);
    if (p[n] != '=') return arena_printf(arena, "expected %s=VALUE", key_names[key]);
    if (costs->of[key].n) return arena_printf(arena, "'%s' is stated twice", key_names[key]);
    p += n + 1;
    const char *error = parse_list(arena, &p, &costs->of[key]);
    if (error) return error;
    if (!*p) return NULL;
    if (*p++ != ',') return "expected ',' between two costs";
  }
}

const char *costs_check_stages(Arena *arena, const StatedCosts *costs, int n_stages) {
  for (int k = 0; k < COST_KEY_COUNT; k++) {
    int n = costs->of[k].n;
    if (n > 1 && n != n_stages)
      return arena_printf(arena, "--cost: '%s' has %d values, but there are %d stages", key_names[k], n, n_stages);
  }
  return NULL;
}

static double at(const CostList *list, int stage, double otherwise) {
  if (list->n == 0) return otherwise;
  return list->at[list->n == 1 ? 0 : stage];
}

double costs_of_task(const StatedCosts *costs, pp_task_kind kind, int stage) {
  switch (kind) {
  case PP_FWD: return at(&costs->of[COST_FORWARD], stage, 1);
  case PP_BWD_INPUT: return at(&costs->of[COST_INPUT], stage, 1);
  case PP_BWD_WEIGHT: return at(&costs->of[COST_WEIGHT], stage, 1);
  case PP_BWD:
    return at(&costs->of[COST_BACKWARD], stage,
              at(&costs->of[COST_INPUT], stage, 1) + at(&costs->of[COST_WEIGHT], stage, 1));
  default: return 0;
  }
}

double costs_of_transfer(const StatedCosts *costs, int stage) { return at(&costs->of[COST_TRANSFER], stage, 0); }

bool costs_of_pair(const StatedCosts *costs, int stage, double *out_cost) {
  *out_cost = at(&costs->of[COST_PAIR], stage, 0);
  return costs->of[COST_PAIR].n > 0;
}
