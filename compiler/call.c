/* Statements, and calls of functions.
 *
 * In: a block or call and its scope. Out: how the block ended, or the call's
 * value. A block makes a scope only when it declares something; a function's
 * parameters, the names its shapes bind and the lets of its body share one.
 * What module bodies, optimizers and schedules add is in their own files. */
#include <string.h>

#include "compiler/eval.h"

/* --- functions as values --- */

Closure *closure_new(Eval *e, const AstFn *fn, Scope *scope) {
  Closure *closure = eval_alloc(e, sizeof *closure);
  closure->fn = fn;
  closure->env = scope;
  scope_capture(scope);
  for (Scope *s = scope; s && !closure->instance; s = s->parent)
    closure->instance = s->instance;
  return closure;
}

void hoist_functions(Eval *e, const AstBlock *body, Scope *scope,
                     Closure **out_nameless) {
  for (int i = 0; i < body->stmts.n; i++) {
    const AstStmt *s = body->stmts.at[i];
    if (s->kind != STMT_FN) continue;
    Closure *closure = closure_new(e, s->fn, scope);
    if (!s->fn->name)
      *out_nameless = closure;
    else
      scope_declare(e, scope, SLOT_FN, (AstName){s->fn->name_loc, s->fn->name},
                    (Val){.kind = VAL_CLOSURE, .closure = closure});
  }
}

bool call_enter(Eval *e, Loc loc, const char *name, Instance *instance) {
  if (e->stop) return false;
  if (e->depth >= EVAL_MAX_DEPTH) {
    eval_fatal(e, loc, "calls are nested more than %d deep here",
               EVAL_MAX_DEPTH);
    return false;
  }
  if (!instance && e->frames.n > 0) instance = VEC_LAST(&e->frames).instance;
  e->depth++;
  VEC_PUSH(e->arena, &e->frames, ((CallFrame){loc, name, instance}));
  return true;
}

void call_leave(Eval *e) {
  e->depth--;
  e->frames.n--;
}

/* --- arguments --- */

bool args_eval(Eval *e, AstArgs written, Scope *scope, Loc loc, Args *out) {
  if (e->n_values + written.n > EVAL_STACK_VALUES) {
    eval_fatal(e, loc, "too many arguments are under way here");
    return false;
  }
  Val *at = e->values + e->n_values;
  e->n_values += written.n;
  for (int i = 0; i < written.n; i++)
    at[i] = eval_value(e, written.at[i].value, scope);
  *out =
      (Args){.n = written.n, .values = at, .written = written.at, .loc = loc};
  return !e->stop;
}

void args_release(Eval *e, const Args *args) {
  e->n_values -= args->n;
}

static Loc arg_loc(Args args, int i) {
  return args.written ? args.written[i].loc : args.loc;
}

static const char *arg_name(Args args, int i) {
  return args.written ? args.written[i].name : NULL;
}

static bool is_preset(const Presets *presets, const char *name) {
  for (int i = 0; presets && i < presets->n; i++)
    if (strcmp(presets->names[i], name) == 0) return true;
  return false;
}

static int find_param(const AstParams *params, const char *name) {
  for (int i = 0; i < params->n; i++)
    if (params->at[i].name == name || strcmp(params->at[i].name, name) == 0)
      return i;
  return -1;
}

typedef struct {
  const char *what, *name; /* "function", its name or NULL */
  Loc declared;
} Callee;

static const char *callee_text(Eval *e, Callee c) {
  return c.name ? eval_printf(e, "%s '%s'", c.what, c.name)
                : eval_printf(e, "this %s", c.what);
}

static void report_unknown_arg(Eval *e, const AstParams *params,
                               const char *name, Loc loc, Callee c) {
  eval_error(e, loc, "%s has no argument '%s'", callee_text(e, c), name);
  StrGuess guess = str_guess_start(name);
  for (int i = 0; i < params->n; i++) str_guess_try(&guess, params->at[i].name);
  if (guess.best)
    eval_note(e, params->at[find_param(params, guess.best)].loc,
              "did you mean '%s'?", guess.best);
  else
    eval_note(e, c.declared, "it is declared here");
}

static void report_too_many(Eval *e, const AstParams *params,
                            const Presets *presets, Args args, int i,
                            Callee c) {
  int takes = 0;
  for (int k = 0; k < params->n; k++)
    if (!is_preset(presets, params->at[k].name)) takes++;
  eval_error(e, arg_loc(args, i), "%s takes %d argument%s, here are %d",
             callee_text(e, c), takes, takes == 1 ? "" : "s", args.n);
  eval_note(e, c.declared, "it is declared here");
}

/* The parameter that each argument is for; -1 after an error. */
static int place_arg(Eval *e, const AstParams *params, const Presets *presets,
                     Args args, int i, int *next, Callee c) {
  const char *name = arg_name(args, i);
  if (!name) {
    while (*next < params->n && is_preset(presets, params->at[*next].name))
      ++*next;
    if (*next < params->n) return (*next)++;
    report_too_many(e, params, presets, args, i, c);
    return -1;
  }
  int k = find_param(params, name);
  if (k < 0) {
    report_unknown_arg(e, params, name, arg_loc(args, i), c);
  } else if (is_preset(presets, name)) {
    eval_error(e, arg_loc(args, i),
               "'%s' is not given here: %s gets it from 'train'", name,
               callee_text(e, c));
    k = -1;
  }
  return k;
}

static bool place_args(Eval *e, const AstParams *params, Args args,
                       const Presets *presets, Slot *slots, Callee c) {
  int next = 0;
  bool ok = true;
  for (int i = 0; i < args.n; i++) {
    int k = place_arg(e, params, presets, args, i, &next, c);
    if (k < 0) {
      ok = false;
      if (!arg_name(args, i)) break;
      continue;
    }
    if (slots[k].value.kind != VAL_UNSET) {
      eval_error(e, arg_loc(args, i), "argument '%s' is given twice",
                 params->at[k].name);
      ok = false;
    }
    slots[k].value = args.values[i];
    slots[k].loc = params->at[k].loc;
  }
  return ok;
}

static void report_missing(Eval *e, const AstParam *param, Args args,
                           Callee c) {
  eval_error(e, args.loc, "%s needs argument '%s'", callee_text(e, c),
             param->name);
  eval_note(e, param->loc, "it is declared here");
}

bool check_args(Eval *e, const AstParams *params, Args args,
                const Presets *presets, const char *what, const char *name,
                Loc declared) {
  Callee c = {what, name, declared};
  Slot *slots = eval_alloc(e, (size_t)params->n * sizeof *slots);
  for (int i = 0; i < params->n; i++) slots[i].value.kind = VAL_UNSET;
  bool ok = place_args(e, params, args, presets, slots, c);
  for (int i = 0; ok && i < params->n; i++) {
    const AstParam *param = &params->at[i];
    if (slots[i].value.kind != VAL_UNSET || param->default_value ||
        is_preset(presets, param->name))
      continue;
    report_missing(e, param, args, c);
    ok = false;
  }
  return ok;
}

static Loc loc_of_param(Args args, const AstParams *params, int k) {
  int next = 0;
  for (int i = 0; i < args.n; i++) {
    const char *name = arg_name(args, i);
    int at = name ? find_param(params, name) : next++;
    if (at == k) return arg_loc(args, i);
  }
  return args.loc;
}

/* Defaults and shapes, in order: each sees the parameters before it. */
static bool complete_param(Eval *e, const AstParams *params, int i, Args args,
                           Scope *scope, Callee c) {
  const AstParam *param = &params->at[i];
  if (scope->slots[i].value.kind == VAL_UNSET) {
    if (!param->default_value) {
      report_missing(e, param, args, c);
      return false;
    }
    Val v = eval_value(e, param->default_value, scope);
    scope->slots[i].value = v;
    if (v.kind == VAL_POISON) return false;
  }
  return !param->shape || shape_match(e, param, scope->slots[i].value, scope,
                                      loc_of_param(args, params, i));
}

bool bind_params(Eval *e, const AstParams *params, Args args,
                 const Presets *presets, Scope *scope, const char *what,
                 const char *name, Loc declared) {
  Callee c = {what, name, declared};
  for (int i = 0; i < params->n; i++)
    scope_declare(e, scope, SLOT_ARGUMENT,
                  (AstName){params->at[i].loc, params->at[i].name},
                  (Val){.kind = VAL_UNSET});
  for (int i = 0; presets && i < presets->n; i++) {
    int k = find_param(params, presets->names[i]);
    if (k >= 0) scope->slots[k].value = presets->values[i];
  }
  if (!place_args(e, params, args, presets, scope->slots, c)) return false;
  bool ok = true;
  for (int i = 0; i < params->n && !e->stop; i++)
    ok = complete_param(e, params, i, args, scope, c) && ok;
  return ok && !e->stop;
}

/* --- calls --- */

static void watch_call(Eval *e, const Closure *closure, Args args) {
  const Closure *watched = e->watch.fn;
  if (!watched || watched->fn != closure->fn ||
      watched->instance != closure->instance || args.n < 1)
    return;
  Val v = args.values[0];
  if (v.kind == VAL_TENSOR && type_rank(v.tensor->type) == 2)
    e->watch.length = type_dim(v.tensor->type, 1);
}

static Val run_body(Eval *e, const AstFn *fn, Scope *scope) {
  Frame frame = {.scope = scope, .own = true};
  Flow flow = exec_stmts(e, fn->body, &frame);
  if (flow == FLOW_STOP || e->stop) return POISON;
  return flow == FLOW_RETURN ? e->result : NONE;
}

/* A function that states its derivative: the body is inlined, its results get
 * the derivative attached. */
static Val run_with_derivative(Eval *e, const Closure *closure, Scope *scope,
                               Loc loc) {
  const AstFn *fn = closure->fn;
  Val *passed = eval_alloc(e, (size_t)fn->params.n * sizeof *passed);
  Guard guard, *outer = e->guard;
  if (!derivative_begin(e, closure, scope, &guard, passed, loc)) return POISON;
  e->guard = &guard;
  Val result = run_body(e, fn, scope);
  e->guard = outer;
  if (result.kind == VAL_POISON) return result;
  return derivative_finish(e, closure, scope, &guard, passed, result, loc);
}

static Val call_closure(Eval *e, const Closure *closure, Args args) {
  const AstFn *fn = closure->fn;
  watch_call(e, closure, args);
  if (!call_enter(e, args.loc, fn->name, closure->instance)) return POISON;
  Scope *scope = scope_push(e, closure->env);
  Val result = POISON;
  if (bind_params(e, &fn->params, args, NULL, scope, "function", fn->name,
                  fn->name_loc))
    result = fn->derivative ? run_with_derivative(e, closure, scope, args.loc)
                            : run_body(e, fn, scope);
  scope_pop(e, scope);
  call_leave(e);
  return result;
}

static Val call_instance(Eval *e, const Instance *instance, Args args) {
  if (instance->call) return call_closure(e, instance->call, args);
  eval_error(e, args.loc, "module '%s' has no function without a name",
             instance->module->name);
  eval_note(e, instance->module->name_loc, "it is declared here");
  return POISON;
}

static Val bind_item(Eval *e, const AstItem *item, Args args) {
  if (item->kind == ITEM_MODULE)
    return eval_error(e, args.loc,
                      "a module is made as a member: 'name: %s(…);'",
                      item->name);
  Val *values = eval_alloc(e, (size_t)args.n * sizeof *values);
  if (args.n > 0) memcpy(values, args.values, (size_t)args.n * sizeof *values);
  Bound *bound = eval_alloc(e, sizeof *bound);
  *bound = (Bound){item, args, args.loc};
  bound->args.values = values;
  return (Val){.kind = VAL_BOUND, .bound = bound};
}

static Val call_constant_fn(Val fn) {
  return val_float(fn.float_value);
}

Val call_value(Eval *e, Val fn, Args args) {
  switch (fn.kind) {
  case VAL_CLOSURE:
    return call_closure(e, fn.closure, args);
  case VAL_BUILTIN:
    return builtin_call(e, fn.builtin, args);
  case VAL_INSTANCE:
    return call_instance(e, fn.instance, args);
  case VAL_ITEM:
    return bind_item(e, fn.item, args);
  case VAL_CONSTANT_FN:
    return call_constant_fn(fn);
  case VAL_POISON:
    return fn;
  case VAL_LIST:
    eval_error(e, args.loc, "a list can't be called");
    eval_note(e, args.loc, "an element can: list[0](…)");
    return POISON;
  default:
    return eval_error(e, args.loc, "%s can't be called", val_describe(e, fn));
  }
}

Val call_with(Eval *e, Val fn, int n, const Val *values, Loc loc) {
  return call_value(e, fn, (Args){.n = n, .values = values, .loc = loc});
}

Val eval_call(Eval *e, const AstExpr *expr, Scope *scope) {
  Val fn = eval_value(e, expr->call.callee, scope);
  Args args;
  bool ok = args_eval(e, expr->call.args, scope, expr->loc, &args);
  Val result = ok ? call_value(e, fn, args) : POISON;
  if (!e->fatal) args_release(e, &args);
  return result;
}

/* --- statements --- */

Scope *frame_scope(Eval *e, Frame *frame) {
  if (!frame->own) {
    frame->scope = scope_push(e, frame->scope);
    frame->own = true;
  }
  return frame->scope;
}

static Flow exec_let(Eval *e, const AstStmt *s, Frame *frame) {
  int64_t since = e->serial;
  int n = s->let.names.n;
  const AstName *names = s->let.names.at;
  if (n == 1) {
    Val v = eval_value(e, s->let.value, frame->scope);
    tensor_name(e, v, names[0].name, since);
    scope_declare(e, frame_scope(e, frame), SLOT_LET, names[0], v);
    return FLOW_NEXT;
  }
  Val v = eval_expr(e, s->let.value, frame->scope);
  bool fits = v.kind == VAL_TUPLE && v.list->n == n;
  if (!fits && v.kind != VAL_POISON)
    eval_error(e, s->let.value->loc, "this gives %s, here are %d names",
               v.kind == VAL_TUPLE
                   ? eval_printf(e, "%lld results", (long long)v.list->n)
               : v.kind == VAL_NONE ? "no value"
                                    : "one result",
               n);
  Scope *scope = frame_scope(e, frame);
  for (int i = 0; i < n; i++) {
    Val part = fits ? v.list->at[i] : POISON;
    tensor_name(e, part, names[i].name, since);
    scope_declare(e, scope, SLOT_LET, names[i], part);
  }
  return FLOW_NEXT;
}

static AstOp assign_operator(AstAssignOp op) {
  static const AstOp ops[] = {AST_COUNT, AST_ADD, AST_SUB, AST_MUL, AST_DIV};
  return ops[op];
}

static Val assigned(Eval *e, const AstStmt *s, Val old, Val v) {
  if (s->assign.op == ASSIGN_SET) return v;
  return eval_binary(e, s->assign.value->loc, assign_operator(s->assign.op),
                     old, v);
}

static Flow assign_name(Eval *e, const AstStmt *s, Frame *frame) {
  const AstExpr *target = s->assign.target;
  int64_t since = e->serial;
  Val v = eval_value(e, s->assign.value, frame->scope);
  Slot *slot = scope_find(frame->scope, target->name, target->loc);
  if (!slot || slot->kind == SLOT_FN || slot->kind == SLOT_MEMBER ||
      slot->kind == SLOT_DIM) {
    eval_error(e, target->loc,
               "'%s' can't be assigned: it is no variable made by 'let'",
               target->name);
    if (slot) eval_note(e, slot->loc, "it is declared here");
    return FLOW_NEXT;
  }
  v = assigned(e, s, slot->value, v);
  slot->value = v;
  tensor_name(e, v, target->name, since);
  return FLOW_NEXT;
}

static Flow assign_element(Eval *e, const AstStmt *s, Frame *frame) {
  const AstExpr *target = s->assign.target;
  Val v = eval_value(e, s->assign.value, frame->scope);
  Val base = eval_value(e, target->index.base, frame->scope);
  int64_t i;
  if (base.kind == VAL_POISON || v.kind == VAL_POISON) return FLOW_NEXT;
  if (base.kind == VAL_TENSOR) {
    eval_error(e, target->loc, "a tensor's elements can't be assigned");
    eval_note(e, target->loc, "select, concat and pad build new tensors");
  } else if (base.kind != VAL_LIST || base.list->frozen) {
    eval_error(e, target->loc, "%s can't be changed",
               base.kind == VAL_LIST ? "an array of modules"
                                     : val_describe(e, base));
  } else if (target->index.subscripts.n != 1) {
    eval_error(e, target->loc, "a list takes one index, as in l[i][j]");
  } else if (eval_int(e, target->index.subscripts.at[0], frame->scope,
                      "an index", &i)) {
    List *list = base.list;
    if (i < 0 || i >= list->n)
      eval_error(e, target->loc, "index %lld is not within a list of %lld",
                 (long long)i, (long long)list->n);
    else
      list->at[list->head + i] = assigned(e, s, list->at[list->head + i], v);
  }
  return FLOW_NEXT;
}

static Flow exec_return(Eval *e, const AstStmt *s, Frame *frame) {
  if (s->values.n == 0) {
    e->result = NONE;
  } else if (s->values.n == 1) {
    e->result = eval_expr(e, s->values.at[0], frame->scope);
  } else {
    Val tuple = list_new(e, s->values.n);
    tuple.kind = VAL_TUPLE;
    for (int i = 0; i < s->values.n; i++)
      list_push(e, tuple.list, eval_value(e, s->values.at[i], frame->scope));
    e->result = tuple;
  }
  e->returned = s->loc;
  return FLOW_RETURN;
}

static Flow exec_if(Eval *e, const AstStmt *s, Frame *frame) {
  bool test;
  if (!eval_condition(e, s->if_.test, frame->scope, "'if'", &test))
    return FLOW_STOP;
  const AstBlock *block = test ? s->if_.then : s->if_.otherwise;
  return block ? exec_block(e, block, frame->scope, frame->body) : FLOW_NEXT;
}

/* One turn of a loop; *scope is its scope, reused when nothing captured it. */
static Flow exec_turn(Eval *e, const AstStmt *s, Frame *frame, Val v,
                      Scope **scope) {
  if (*scope && (*scope)->captured) *scope = NULL;
  if (!*scope) *scope = scope_push(e, frame->scope);
  (*scope)->n = 0;
  scope_declare(e, *scope, SLOT_LET, s->for_.name, v);
  Frame turn = {.scope = *scope, .own = true, .body = frame->body};
  if (++e->steps > e->step_limit)
    eval_fatal(e, s->loc,
               "this program does not end within %lld evaluation steps",
               (long long)e->step_limit);
  return e->stop ? FLOW_STOP : exec_stmts(e, s->for_.body, &turn);
}

static bool ends_loop(Flow flow) {
  return flow != FLOW_NEXT && flow != FLOW_CONTINUE;
}

static Flow for_range(Eval *e, const AstStmt *s, Frame *frame) {
  int64_t a, b;
  if (!range_bounds(e, s->for_.over, frame->scope, &a, &b))
    return eval_stop(e), FLOW_STOP;
  Scope *scope = NULL;
  Flow flow = FLOW_NEXT;
  for (int64_t i = a; i < b && !ends_loop(flow); i++)
    flow = exec_turn(e, s, frame, val_int(i), &scope);
  if (scope) scope_pop(e, scope);
  return flow;
}

static Flow for_list(Eval *e, const AstStmt *s, Frame *frame) {
  Val over = eval_value(e, s->for_.over, frame->scope);
  if (over.kind != VAL_LIST) {
    if (over.kind != VAL_POISON)
      eval_error(e, s->for_.over->loc,
                 "'for' goes over a range or a list, not %s",
                 val_describe(e, over));
    if (over.kind == VAL_INT)
      eval_note(e, s->for_.over->loc, "a range is 0..%lld",
                (long long)over.int_value);
    return eval_stop(e), FLOW_STOP;
  }
  Scope *scope = NULL;
  Flow flow = FLOW_NEXT;
  List *list = over.list;
  for (int64_t i = 0; i < list->n && !ends_loop(flow); i++)
    flow = exec_turn(e, s, frame, list->at[list->head + i], &scope);
  if (scope) scope_pop(e, scope);
  return flow;
}

static Flow exec_for(Eval *e, const AstStmt *s, Frame *frame) {
  if (frame->body) frame->body->loops++;
  Flow flow = s->for_.over->kind == EXPR_RANGE ? for_range(e, s, frame)
                                               : for_list(e, s, frame);
  if (frame->body) frame->body->loops--;
  return flow == FLOW_BREAK || flow == FLOW_CONTINUE ? FLOW_NEXT : flow;
}

static Flow exec_while(Eval *e, const AstStmt *s, Frame *frame) {
  for (;;) {
    bool test;
    if (!eval_condition(e, s->while_.test, frame->scope, "'while'", &test))
      return FLOW_STOP;
    if (!test) return FLOW_NEXT;
    Flow flow = exec_block(e, s->while_.body, frame->scope, frame->body);
    if (flow == FLOW_BREAK) return FLOW_NEXT;
    if (ends_loop(flow)) return flow;
  }
}

/* Adds "d = 8" for each number that `test` names, once. What `and` and `or`
 * may have left out is not looked at. */
static void put_numbers(Eval *e, const AstExpr *test, Scope *scope, Str *out) {
  switch (test->kind) {
    case EXPR_UNARY:
      put_numbers(e, test->unary.operand, scope, out);
      break;
    case EXPR_BINARY:
      put_numbers(e, test->binary.left, scope, out);
      if (test->binary.op != AST_AND && test->binary.op != AST_OR)
        put_numbers(e, test->binary.right, scope, out);
      break;
    case EXPR_CALL:
      for (int i = 0; i < test->call.args.n; i++)
        put_numbers(e, test->call.args.at[i].value, scope, out);
      break;
    case EXPR_NAME: {
      Val v = eval_expr(e, test, scope);
      const char *name = eval_printf(e, "%s = ", test->name);
      if (!val_is_number(v) || strstr(str_text(out), name)) break;
      str_puts(out, out->length > 0 ? ", " : "");
      str_puts(out, name);
      val_print(out, v, 0);
      break;
    }
    default:
      break;
  }
}

/* The error stands where the requirement was not met: at the call. */
static Flow exec_require(Eval *e, const AstStmt *s, Frame *frame) {
  bool test;
  if (!eval_condition(e, s->require.test, frame->scope, "'require'", &test))
    return FLOW_STOP;
  if (test) return FLOW_NEXT;
  e->refused = s->loc;
  Val text = eval_value(e, s->require.text, frame->scope);
  Loc loc = e->frames.n > 0 ? VEC_LAST(&e->frames).loc : s->loc;
  if (loc.line == 0) loc = s->loc;
  if (text.kind == VAL_STRING) {
    Str numbers = {0};
    put_numbers(e, s->require.test, frame->scope, &numbers);
    bool elsewhere = loc.line != s->loc.line || loc.file != s->loc.file;
    eval_error(e, loc, "%s", text.string);
    if (numbers.length > 0)
      eval_note(e, s->loc, "required here: %s", str_text(&numbers));
    else if (elsewhere)
      eval_note(e, s->loc, "required here");
    str_free(&numbers);
  } else if (text.kind != VAL_POISON) {
    eval_error(e, s->require.text->loc,
               "the text of 'require' must be a string, not %s",
               val_describe(e, text));
  }
  return eval_stop(e), FLOW_STOP;
}

static Flow exec_fn(Eval *e, const AstStmt *s, Frame *frame) {
  if (frame->body && frame->body->hoisted == frame->scope) return FLOW_NEXT;
  Scope *scope = frame_scope(e, frame);
  Closure *closure = closure_new(e, s->fn, scope);
  scope_declare(e, scope, SLOT_FN, (AstName){s->fn->name_loc, s->fn->name},
                (Val){.kind = VAL_CLOSURE, .closure = closure});
  return FLOW_NEXT;
}

static Flow exec_state(Eval *e, const AstStmt *s, Frame *frame) {
  Val init = eval_value(e, s->state.init, frame->scope);
  bool zeros = init.kind == VAL_INIT && init.init->kind == PP_INIT_ZEROS;
  if (!zeros && init.kind != VAL_POISON)
    eval_error(e, s->state.init->loc, "an optimizer's state starts as zeros");
  for (int i = 0; i < s->state.names.n; i++)
    scope_declare(e, frame->scope, SLOT_STATE, s->state.names.at[i],
                  (Val){.kind = VAL_UNSET});
  return FLOW_NEXT;
}

static Flow exec_rank(const AstStmt *s, Frame *frame) {
  frame->body->rank = s;
  frame->body->rank_scope = frame->scope;
  scope_capture(frame->scope);
  return FLOW_NEXT;
}

static Flow exec_stmt(Eval *e, const AstStmt *s, Frame *frame) {
  switch (s->kind) {
  case STMT_LET:
    return exec_let(e, s, frame);
  case STMT_ASSIGN:
    return s->assign.target->kind == EXPR_NAME ? assign_name(e, s, frame)
                                               : assign_element(e, s, frame);
  case STMT_EXPR:
    eval_expr(e, s->expr, frame->scope);
    return FLOW_NEXT;
  case STMT_RETURN:
    return exec_return(e, s, frame);
  case STMT_IF:
    return exec_if(e, s, frame);
  case STMT_FOR:
    return exec_for(e, s, frame);
  case STMT_WHILE:
    return exec_while(e, s, frame);
  case STMT_BREAK:
    return FLOW_BREAK;
  case STMT_CONTINUE:
    return FLOW_CONTINUE;
  case STMT_REQUIRE:
    return exec_require(e, s, frame);
  case STMT_STAGE_END:
    return exec_stage_end(e, s);
  case STMT_FN:
    return exec_fn(e, s, frame);
  case STMT_OUTPUT:
    return exec_output(e, s, frame->scope);
  case STMT_PARAM:
  case STMT_MEMBER:
    return exec_module_stmt(e, s, frame);
  case STMT_STATE:
    return exec_state(e, s, frame);
  case STMT_RANK:
    return exec_rank(s, frame);
  case STMT_OVERLAP:
    return exec_overlap(e, s, frame);
  case STMT_COUNT:
    break;
  }
  return FLOW_NEXT;
}

Flow exec_stmts(Eval *e, const AstBlock *block, Frame *frame) {
  for (int i = 0; i < block->stmts.n; i++) {
    const AstStmt *s = block->stmts.at[i];
    e->here = s->loc;
    Flow flow = exec_stmt(e, s, frame);
    if (e->pending.n > 0) eval_flush_notes(e);
    if (e->stop) return FLOW_STOP;
    if (flow != FLOW_NEXT) return flow;
  }
  return FLOW_NEXT;
}

Flow exec_block(Eval *e, const AstBlock *block, Scope *scope, Body *body) {
  Frame frame = {.scope = scope, .body = body};
  Flow flow = exec_stmts(e, block, &frame);
  if (frame.own) scope_pop(e, frame.scope);
  return flow;
}
