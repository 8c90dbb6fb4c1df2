/* The optimizer, its rate, and the clip: functions of run-time numbers and of
 * one parameter.
 *
 * In: what train names. Out: @"update.NAME"(p, g, state…, step) → (p', state'…)
 * for each parameter,
 * @rate(step) when the optimizer has an argument `lr`, @clip(norm). step and
 * norm are f64 scalars. The optimizer's arguments are bound once; its body runs
 * for each parameter, so that each has its own state. */
#include <math.h>
#include <string.h>

#include "compiler/eval.h"

enum { MAX_STATES = 4 };

/* A run-time number as argument of the function that is traced. */
static Val number_argument(Eval *e, Loc loc) {
  return tensor_wrap(
      e, loc,
      func_add_arg(e->ir, e->trace->func, type_scalar(e->ir, PP_F64), loc),
      true);
}

static bool check_constant(Eval *e, Loc loc, Val v, const char *what,
                           bool zero_allowed) {
  if (!val_is_number(v)) return true;
  double x = val_number(v);
  if (isfinite(x) && (x > 0 || (zero_allowed && x == 0))) return true;
  eval_error(e, loc, "%s must be finite and %s, but it is %g", what,
             zero_allowed ? "not negative" : "positive", isnan(x) ? fabs(x) : x);
  return false;
}

/* func @name(x: f64) -> f64, what `fn` makes of x. */
static bool trace_numbers(Eval *e, Val fn, const char *name, const char *what,
                          bool zero_allowed, Loc loc) {
  Trace *trace = trace_open(e, TRACE_NUMBERS, name, loc);
  Val x = number_argument(e, loc);
  Val y = call_with(e, fn, 1, &x, loc);
  Value out = {0};
  bool ok =
      y.kind != VAL_POISON && check_constant(e, loc, y, what, zero_allowed);
  if (ok && y.kind != VAL_TENSOR && !val_is_number(y)) {
    eval_error(e, loc, "%s must be a number, but it is %s", what,
               val_describe(e, y));
    ok = false;
  }
  if (ok) out = tensor_as(e, loc, y, type_scalar(e->ir, PP_F64), what);
  ok = ok && !value_is_null(out);
  trace_close(e, trace, loc, ok ? 1 : 0, &out);
  return ok;
}

static bool is_function(Val v) {
  return v.kind == VAL_CLOSURE || v.kind == VAL_BUILTIN ||
         v.kind == VAL_CONSTANT_FN || v.kind == VAL_INSTANCE;
}

bool clip_trace(Eval *e, Loc loc) {
  if (e->clip.kind == VAL_UNSET || e->clip.kind == VAL_POISON) return true;
  if (!is_function(e->clip)) {
    eval_error(e, loc,
               "a clip is a function of the gradient norm, but this is %s",
               val_describe(e, e->clip));
    if (val_is_number(e->clip))
      eval_note(e, loc, "global_norm(limit) of the library makes one");
    return false;
  }
  return trace_numbers(e, e->clip, "clip", "the clip's factor", false, loc);
}

/* --- the optimizer --- */

typedef struct {
  const AstItem *item;
  Scope *arguments;
  Loc loc;
} Optimizer;

static Slot *find_argument(Scope *scope, const char *name) {
  for (int i = 0; i < scope->n; i++)
    if (strcmp(scope->slots[i].name, name) == 0) return &scope->slots[i];
  return NULL;
}

static Loc written_place(const Bound *bound, const char *name) {
  const Args *args = &bound->args;
  for (int i = 0; args->written && i < args->n; i++)
    if (args->written[i].name && strcmp(args->written[i].name, name) == 0)
      return args->written[i].loc;
  return bound->loc;
}

/* A number given as rate is that rate at every step. */
static bool trace_rate(Eval *e, Optimizer *o) {
  Slot *lr = find_argument(o->arguments, "lr");
  if (!lr || lr->value.kind == VAL_POISON) return true;
  Loc loc = written_place(e->optimizer, "lr");
  if (val_is_number(lr->value)) {
    if (!check_constant(e, loc, lr->value, "the rate", true)) return false;
    lr->value =
        (Val){.kind = VAL_CONSTANT_FN, .float_value = val_number(lr->value)};
  }
  if (!is_function(lr->value)) {
    eval_error(e, loc,
               "'lr' is a function of the step, such as constant(0.1), not %s",
               val_describe(e, lr->value));
    return false;
  }
  return trace_numbers(e, lr->value, "rate", "the rate", true, loc);
}

/* Runs the body: its functions and states in a scope of their own. */
static Scope *run_optimizer_body(Eval *e, const Optimizer *o,
                                 Closure **out_update) {
  Scope *scope = scope_push(e, o->arguments);
  scope->open = scope->captured = true;
  const AstBlock *block = o->item->decl.body;
  Body body = {.hoisted = scope};
  Frame frame = {.scope = scope, .own = true, .body = &body};
  *out_update = NULL;
  hoist_functions(e, block, scope, out_update);
  if (exec_stmts(e, block, &frame) == FLOW_STOP) return NULL;
  if (!*out_update) bug("an optimizer without a function passed the resolver");
  return scope;
}

static int collect_states(Scope *scope, Slot **out) {
  int n = 0;
  for (int i = 0; i < scope->n; i++)
    if (scope->slots[i].kind == SLOT_STATE && n < MAX_STATES)
      out[n++] = &scope->slots[i];
  return n;
}

static bool check_states(Eval *e, const Optimizer *o, const Scope *scope) {
  Str text = {0};
  int n = 0;
  for (int i = 0; i < scope->n; i++)
    if (scope->slots[i].kind == SLOT_STATE)
      str_printf(&text, "%s%s", n++ ? "," : "", scope->slots[i].name);
  e->states = eval_printf(e, "%s", str_text(&text));
  str_free(&text);
  if (n > MAX_STATES)
    eval_error(e, o->item->name_loc,
               "optimizer '%s' has %d states, %d are the most", o->item->name,
               n, MAX_STATES);
  return n <= MAX_STATES;
}

/* What the function returned and the states hold at its end, checked. */
static bool update_results(Eval *e, const Optimizer *o, const Param *param,
                           Val p, int n, Slot *const *states, Value *out) {
  Loc loc = e->returned.line ? e->returned : o->loc;
  if (p.kind == VAL_POISON) return false;
  if (p.kind == VAL_NONE || p.kind == VAL_TUPLE) {
    eval_error(
        e, o->loc,
        "the function of optimizer '%s' must return the parameter's new value",
        o->item->name);
    return false;
  }
  out[0] = tensor_as(e, loc, p, param->type, "the parameter's new value");
  for (int i = 0; i < n; i++)
    out[1 + i] = tensor_as(e, loc, states[i]->value, param->type,
                           eval_printf(e, "state '%s'", states[i]->name));
  for (int i = 0; i <= n; i++)
    if (value_is_null(out[i])) return false;
  return true;
}

static bool trace_update(Eval *e, const Optimizer *o, const Param *param) {
  Closure *update;
  Scope *scope = run_optimizer_body(e, o, &update);
  if (!scope || !check_states(e, o, scope)) return false;
  Slot *states[MAX_STATES];
  int n = collect_states(scope, states);
  Trace *trace = trace_open(e, TRACE_UPDATE,
                            eval_printf(e, "update.%s", param->name), o->loc);
  Val args[3];
  for (int i = 0; i < 2; i++)
    args[i] = tensor_wrap(e, o->loc,
                          func_add_arg(e->ir, trace->func, param->type, o->loc),
                          false);
  for (int i = 0; i < n; i++)
    states[i]->value = tensor_wrap(
        e, o->loc, func_add_arg(e->ir, trace->func, param->type, o->loc),
        false);
  args[2] = number_argument(e, o->loc);
  args[0].tensor->param = param->name;
  Value out[1 + MAX_STATES] = {{0}};
  Val p = call_with(e, (Val){.kind = VAL_CLOSURE, .closure = update}, 3, args,
                    o->loc);
  bool ok = !e->stop && update_results(e, o, param, p, n, states, out);
  trace_close(e, trace, o->loc, ok ? 1 + n : 0, out);
  return ok;
}

bool optimizer_trace(Eval *e) {
  Bound *bound = e->optimizer;
  Optimizer o = {.item = bound->item, .loc = bound->loc};
  if (!call_enter(e, bound->loc, o.item->name, NULL)) return false;
  o.arguments = scope_push(e, eval_file_scope(e, o.item->file));
  o.arguments->captured = true;
  bool ok = bind_params(e, &o.item->decl.params, bound->args, NULL, o.arguments,
                        "optimizer", o.item->name, o.item->name_loc);
  ok = ok && trace_rate(e, &o);
  for (int i = 0; ok && i < e->params.n; i++)
    ok = trace_update(e, &o, e->params.at[i]);
  call_leave(e);
  return ok;
}
