/* The setting `loss_scale` of `train`: a number, `dynamic`, or `dynamic(initial = …, interval = …, growth = …,
 * backoff = …)`. In: its expression. Out: a LossScale of which each number was checked where it stands, rounded to
 * the model's dtype, as the graph takes it. What it means is in loss_scale.c. */
#include <math.h>

#include "compiler/eval.h"

static const LossScale by_default = {.first = 65536, .interval = 2000, .growth = 2, .backoff = 0.5};

static bool check_scale(Eval *e, Loc loc, double scale) {
  if (scale >= PP_LOSS_SCALE_MIN && scale <= PP_LOSS_SCALE_MAX) return true;
  char text[32];
  str_format_double(scale, text);
  eval_error(e, loc, "a loss scale is a number from 2^-96 to 2^96, not %s", text);
  return false;
}

static double rounded(const Eval *e, double x) { return e->real == PP_F32 ? (double)(float)x : x; }

/* Leaves *number as it is when the argument was left out. */
static bool take_number(Eval *e, const BuiltinCall *call, int i, double *number) {
  Val v = call->v[i];
  if (v.kind == VAL_UNSET) return true;
  if (val_is_number(v)) return *number = val_number(v), true;
  if (v.kind != VAL_POISON)
    eval_error(e, call->at[i], "'%s' of a loss scale is a number, not %s", call->builtin->params[i], val_describe(e, v));
  return false;
}

static bool take_interval(Eval *e, const BuiltinCall *call, int i, int64_t *interval) {
  if (call->v[i].kind == VAL_UNSET) return true;
  if (!builtin_int(e, call, i, "the steps between growths", interval)) return false;
  if (*interval >= 1) return true;
  eval_error(e, call->at[i], "'interval' must be at least 1, not %lld", (long long)*interval);
  return false;
}

static bool check_factor(Eval *e, const BuiltinCall *call, int i, bool fine, const char *wanted, double x) {
  char text[32];
  str_format_double(x, text);
  if (!fine) eval_error(e, call->at[i], "'%s' must be %s, not %s", call->builtin->params[i], wanted, text);
  return fine;
}

BUILTIN(dynamic) {
  LossScale *s = eval_alloc(e, sizeof *s);
  *s = by_default;
  bool ok = take_number(e, call, 0, &s->first) && check_scale(e, call->at[0], s->first);
  ok = take_interval(e, call, 1, &s->interval) && ok;
  ok = take_number(e, call, 2, &s->growth) && check_factor(e, call, 2, s->growth > 1 && isfinite(s->growth), "above 1", s->growth) && ok;
  ok = take_number(e, call, 3, &s->backoff) && check_factor(e, call, 3, s->backoff > 0 && s->backoff < 1, "between 0 and 1", s->backoff) && ok;
  s->first = rounded(e, s->first);
  return ok ? (Val){.kind = VAL_LOSS_SCALE, .loss_scale = s} : POISON;
}

LossScale loss_scale_of(Eval *e, Val v, Loc loc) {
  LossScale scale = {.first = 1};
  if (v.kind == VAL_LOSS_SCALE) return *v.loss_scale;
  if (v.kind == VAL_BUILTIN && v.builtin->run == builtin_dynamic) {
    scale = by_default;
  } else if (val_is_number(v)) {
    if (check_scale(e, loc, val_number(v))) scale.first = rounded(e, val_number(v));
  } else if (v.kind != VAL_POISON) {
    eval_error(e, loc, "'loss_scale' is a number, dynamic or dynamic(…), not %s", val_describe(e, v));
  }
  return scale;
}
