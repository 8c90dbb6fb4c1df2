/* Expressions: a tree walker.
 *
 * In: a resolved AST expression and a scope. Out: a value; operations on
 * tensors go to tensors.c, calls to call.c. A name is found by walking the
 * scopes; where the walk can't differ next time (it passed no module's scope)
 * the AST node remembers hops and slot, checked by name at the next visit. */
#include <math.h>
#include <string.h>

#include "compiler/eval.h"

static void check_budget(Eval *e, Loc loc) {
  if (e->steps > e->step_limit)
    eval_fatal(e, loc, "this program does not end within %lld evaluation steps",
               (long long)e->step_limit);
  size_t used = (size_t)(e->stack_base - (char *)__builtin_frame_address(0));
  if (used > e->stack_limit)
    eval_fatal(e, loc, "calls are nested too deeply here (%d of them)",
               e->depth);
}

/* --- names --- */

enum { CACHE_ITEM = -1, CACHE_BUILTIN = -2 };

Scope *eval_file_scope(Eval *e, const AstFile *file) {
  for (int i = 0; i < e->program->files.n; i++)
    if (e->program->files.at[i] == file) return e->file_scopes[i];
  return e->file_scopes[0];
}

static Val run_const(Eval *e, ItemState *state) {
  const AstItem *item = state->item;
  Trace *trace = e->trace;
  Guard *guard = e->guard;
  ScheduledActions *actions = e->schedule_run.out;
  e->trace = NULL, e->guard = NULL, e->schedule_run.out = NULL;
  const AstExpr *expr = state->override ? state->override : item->value;
  Val v = eval_value(
      e, expr,
      eval_file_scope(e, state->override ? e->program->main : item->file));
  e->trace = trace, e->guard = guard, e->schedule_run.out = actions;
  return v;
}

static Val item_state_value(Eval *e, int index, Loc loc) {
  ItemState *state = &e->items.at[index];
  const AstItem *item = state->item;
  if (state->state == ITEM_DONE) return state->value;
  if (state->state == ITEM_RUNNING) {
    eval_error(e, item->name_loc, "const '%s' depends on itself", item->name);
    eval_note(e, loc, "it is needed here to compute its own value");
    return POISON;
  }
  state->state = ITEM_RUNNING;
  Val v = {.kind = VAL_ITEM, .item = item};
  if (item->kind == ITEM_CONST) {
    v = run_const(e, state);
  } else if (item->kind == ITEM_FN) {
    v = (Val){.kind = VAL_CLOSURE,
              .closure =
                  closure_new(e, item->fn, eval_file_scope(e, item->file))};
  }
  state = &e->items.at[index];
  state->value = v;
  state->state = ITEM_DONE;
  return v;
}

Val eval_item(Eval *e, const AstItem *item, Loc loc) {
  int index = (int)(intptr_t)ptrmap_get(&e->item_index, item) - 1;
  if (index < 0) bug("item '%s' has no index", item->name);
  return item_state_value(e, index, loc);
}

Val eval_slot(Eval *e, Slot *slot, Loc loc) {
  switch (slot->value.kind) {
  case VAL_PARAM:
    return param_read(e, slot->value.param, loc);
  case VAL_SOURCE:
    return source_read(e, slot->value.source, loc);
  case VAL_SETTING: {
    bool ok;
    int64_t v = setting_value(e, (SettingId)slot->value.setting, loc, &ok);
    return ok ? val_int(v) : POISON;
  }
  default:
    return slot->value;
  }
}

static Slot *cached_slot(const AstExpr *expr, Scope *scope) {
  for (int hops = expr->cache[0] - 1; hops > 0; hops--) {
    scope = scope->parent;
    if (!scope) return NULL;
  }
  int index = expr->cache[1];
  if (index >= scope->n) return NULL;
  Slot *slot = &scope->slots[index];
  return slot->name == expr->name && slot->value.kind != VAL_UNSET ? slot
                                                                   : NULL;
}

/* Walks like scope_find, and remembers the way when it is fixed. */
static Slot *find_and_cache(AstExpr *expr, Scope *start) {
  Slot *slot = scope_find(start, expr->name, expr->loc);
  if (!slot) return NULL;
  int hops = 0;
  for (Scope *s = start; s; s = s->parent, hops++) {
    if (s->open) return slot;
    if (slot >= s->slots && slot < s->slots + s->n) {
      expr->cache[0] = hops + 1;
      expr->cache[1] = (int)(slot - s->slots);
      return slot;
    }
  }
  return slot;
}

static bool passes_open(const Scope *scope) {
  for (; scope; scope = scope->parent)
    if (scope->open) return true;
  return false;
}

static const AstFile *scope_file(const Scope *scope) {
  while (scope->parent) scope = scope->parent;
  return scope->file;
}

static void guess_items(StrGuess *guess, const AstFile *file) {
  for (int i = 0; i < file->names.n; i++)
    str_guess_try(guess, file->names.entries[i].key);
}

/* -D and --schedule are not seen by the resolver. */
static Val unknown_on_command_line(Eval *e, const AstExpr *expr) {
  const AstFile *file = e->program->main;
  StrGuess guess = str_guess_start(expr->name);
  guess_items(&guess, file);
  for (int i = 0; i < file->items.n; i++)
    if (file->items.at[i]->kind == ITEM_USE && file->items.at[i]->use)
      guess_items(&guess, file->items.at[i]->use);
  eval_error(e, expr->loc, "unknown name '%s'", expr->name);
  if (guess.best)
    eval_note(e, dsl_find_item(file, guess.best)->name_loc,
              "did you mean '%s'?", guess.best);
  return POISON;
}

static Val eval_global(Eval *e, AstExpr *expr, Scope *scope) {
  AstItem *item = dsl_find_item(scope_file(scope), expr->name);
  if (item) {
    int index = (int)(intptr_t)ptrmap_get(&e->item_index, item);
    if (index > 0 && !passes_open(scope))
      expr->cache[0] = CACHE_ITEM, expr->cache[1] = index - 1;
    return eval_item(e, item, expr->loc);
  }
  Val v = builtin_value(e, expr->name, expr->loc);
  if (v.kind == VAL_BUILTIN && !passes_open(scope))
    expr->cache[0] = CACHE_BUILTIN, expr->cache[1] = (int)(v.builtin - builtins);
  if (v.kind != VAL_UNSET) return v;
  if (expr->loc.file < e->n_sources) /* the resolver knows it */
    return eval_error(
        e, expr->loc,
        "'%s' has no value here: the 'let' that declares it did not run",
        expr->name);
  return unknown_on_command_line(e, expr);
}

static Val eval_name(Eval *e, const AstExpr *expr, Scope *scope) {
  if (expr->cache[0] == CACHE_ITEM)
    return item_state_value(e, expr->cache[1], expr->loc);
  if (expr->cache[0] == CACHE_BUILTIN)
    return (Val){.kind = VAL_BUILTIN, .builtin = &builtins[expr->cache[1]]};
  Slot *slot = expr->cache[0] > 0 ? cached_slot(expr, scope) : NULL;
  if (!slot) slot = find_and_cache((AstExpr *)expr, scope);
  return slot ? eval_slot(e, slot, expr->loc)
              : eval_global(e, (AstExpr *)expr, scope);
}

/* --- numbers --- */

static Val int_overflow(Eval *e, Loc loc, AstOp op, int64_t a, int64_t b) {
  return eval_error(e, loc, "%lld %s %lld does not fit in 64 bits",
                    (long long)a, ast_op_text(op), (long long)b);
}

static Val int_divide(Eval *e, Loc loc, int64_t a, int64_t b) {
  if (b == 0) return eval_error(e, loc, "division by zero");
  if (b == -1)
    return a == INT64_MIN ? int_overflow(e, loc, AST_DIV, a, b) : val_int(-a);
  if (a % b != 0) {
    eval_error(e, loc, "%lld / %lld is not exact", (long long)a, (long long)b);
    eval_note(e, loc, "div(a, b) rounds down; %lld.0 / %lld is a float",
              (long long)a, (long long)b);
    return POISON;
  }
  return val_int(a / b);
}

/* A NaN is neither less, equal nor greater. */
static Val comparison(AstOp op, bool less, bool equal, bool greater) {
  switch (op) {
  case AST_EQ:
    return val_bool(equal);
  case AST_NE:
    return val_bool(!equal);
  case AST_LT:
    return val_bool(less);
  case AST_LE:
    return val_bool(less || equal);
  case AST_GT:
    return val_bool(greater);
  case AST_GE:
    return val_bool(greater || equal);
  default:
    return POISON;
  }
}

static Val int_binary(Eval *e, Loc loc, AstOp op, int64_t a, int64_t b) {
  int64_t r;
  switch (op) {
  case AST_ADD:
    return __builtin_add_overflow(a, b, &r) ? int_overflow(e, loc, op, a, b)
                                            : val_int(r);
  case AST_SUB:
    return __builtin_sub_overflow(a, b, &r) ? int_overflow(e, loc, op, a, b)
                                            : val_int(r);
  case AST_MUL:
    return __builtin_mul_overflow(a, b, &r) ? int_overflow(e, loc, op, a, b)
                                            : val_int(r);
  case AST_DIV:
    return int_divide(e, loc, a, b);
  default:
    return comparison(op, a < b, a == b, a > b);
  }
}

static Val float_binary(AstOp op, double a, double b) {
  switch (op) {
  case AST_ADD:
    return val_float(a + b);
  case AST_SUB:
    return val_float(a - b);
  case AST_MUL:
    return val_float(a * b);
  case AST_DIV:
    return val_float(a / b);
  default:
    return comparison(op, a < b, a == b, a > b);
  }
}

static Val concat_strings(Eval *e, Val a, Val b) {
  if (strlen(a.string) + strlen(b.string) > 1 << 20) {
    eval_fatal(e, e->here, "a string of more than a million bytes");
    return POISON;
  }
  return (Val){.kind = VAL_STRING,
               .string = eval_printf(e, "%s%s", a.string, b.string)};
}

static Val concat_lists(Eval *e, const List *a, const List *b) {
  Val v = list_new(e, a->n + b->n);
  for (int64_t i = 0; i < a->n; i++) list_push(e, v.list, a->at[a->head + i]);
  for (int64_t i = 0; i < b->n; i++) list_push(e, v.list, b->at[b->head + i]);
  e->steps += a->n + b->n;
  return v;
}

Val eval_binary(Eval *e, Loc loc, AstOp op, Val a, Val b) {
  if (a.kind == VAL_INT && b.kind == VAL_INT && op != AST_MATMUL)
    return int_binary(e, loc, op, a.int_value, b.int_value);
  if (a.kind == VAL_POISON || b.kind == VAL_POISON) return POISON;
  if (a.kind == VAL_TENSOR || b.kind == VAL_TENSOR)
    return tensor_binary(e, loc, op, a, b);
  if (val_is_number(a) && val_is_number(b) && op != AST_MATMUL)
    return float_binary(op, val_number(a), val_number(b));
  if (op == AST_EQ || op == AST_NE) {
    bool equal;
    return val_equal(e, loc, a, b, &equal) ? val_bool(equal == (op == AST_EQ))
                                           : POISON;
  }
  if (op == AST_ADD && a.kind == VAL_STRING && b.kind == VAL_STRING)
    return concat_strings(e, a, b);
  if (op == AST_ADD && a.kind == VAL_LIST && b.kind == VAL_LIST)
    return concat_lists(e, a.list, b.list);
  return eval_error(e, loc, "'%s' does not work on %s and %s", ast_op_text(op),
                    val_describe(e, a), val_describe(e, b));
}

static Val eval_negate(Eval *e, Loc loc, Val v) {
  switch (v.kind) {
  case VAL_INT:
    if (v.int_value == INT64_MIN)
      return eval_error(e, loc, "-(%lld) does not fit in 64 bits",
                        (long long)v.int_value);
    return val_int(-v.int_value);
  case VAL_FLOAT:
    return val_float(-v.float_value);
  case VAL_TENSOR:
    return tensor_unary(e, loc, OP_NEG, v);
  case VAL_POISON:
    return v;
  default:
    return eval_error(e, loc, "'-' does not work on %s", val_describe(e, v));
  }
}

static Val eval_not(Eval *e, Loc loc, Val v) {
  if (v.kind == VAL_BOOL) return val_bool(!v.bool_value);
  if (v.kind == VAL_TENSOR) return tensor_unary(e, loc, OP_NOT, v);
  if (v.kind == VAL_POISON) return v;
  return eval_error(e, loc, "'not' works on bools, not on %s",
                    val_describe(e, v));
}

static bool is_logical(Val v) {
  return v.kind == VAL_BOOL || v.kind == VAL_TENSOR;
}

/* `and`, `or`: a compile-time left side decides alone where it can. */
static Val eval_logic(Eval *e, const AstExpr *expr, Scope *scope) {
  AstOp op = expr->binary.op;
  Val a = eval_value(e, expr->binary.left, scope);
  if (a.kind == VAL_BOOL && a.bool_value == (op == AST_OR)) return a;
  Val b = eval_value(e, expr->binary.right, scope);
  if (a.kind == VAL_POISON || b.kind == VAL_POISON) return POISON;
  if (!is_logical(a) || !is_logical(b))
    return eval_error(e, expr->loc, "'%s' works on bools, not on %s",
                      ast_op_text(op), val_describe(e, is_logical(a) ? b : a));
  if (a.kind == VAL_BOOL) return b;
  return tensor_logic(e, expr->loc, op == AST_OR ? OP_OR : OP_AND, a, b);
}

/* --- lists --- */

bool range_bounds(Eval *e, const AstExpr *expr, Scope *scope, int64_t *out_a,
                  int64_t *out_b) {
  return eval_int(e, expr->binary.left, scope, "a range", out_a) &&
         eval_int(e, expr->binary.right, scope, "a range", out_b);
}

static Val eval_range(Eval *e, const AstExpr *expr, Scope *scope) {
  int64_t a, b, n;
  if (!range_bounds(e, expr, scope, &a, &b)) return POISON;
  if (b <= a) return list_new(e, 0);
  if (__builtin_sub_overflow(b, a, &n) || n > 1 << 26)
    return eval_error(e, expr->loc, "this range is too long for a list");
  Val v = list_new(e, n);
  for (int64_t i = a; i < b && !e->stop; i++) list_push(e, v.list, val_int(i));
  e->steps += n;
  return v;
}

/* `..` in a list: the axes that the parameter's shape bound. */
static void push_ellipsis(Eval *e, const AstExpr *at, Scope *scope,
                          List *list) {
  for (Scope *s = scope; s; s = s->parent)
    for (int i = s->n - 1; i >= 0; i--) {
      const Slot *slot = &s->slots[i];
      if (slot->name[0] != '.') continue;
      for (int64_t k = 0; k < slot->value.list->n; k++)
        list_push(e, list, slot->value.list->at[k]);
      return;
    }
  eval_error(e, at->loc,
             "'..' stands for nothing here: no parameter around it has a shape "
             "[.., …]");
  list_push(e, list, POISON);
}

static Val eval_list(Eval *e, const AstExpr *expr, Scope *scope) {
  Val v = list_new(e, expr->list.elements.n);
  for (int i = 0; i < expr->list.elements.n && !e->stop; i++) {
    const AstExpr *element = expr->list.elements.at[i];
    if (element->kind == EXPR_ELLIPSIS)
      push_ellipsis(e, element, scope, v.list);
    else
      list_push(e, v.list, eval_value(e, element, scope));
  }
  return v;
}

static Val list_slice(Eval *e, const AstExpr *expr, const List *list, int64_t a,
                      int64_t b) {
  if (a < 0 || b > list->n || a > b)
    return eval_error(e, expr->loc, "%lld..%lld is not within a list of %lld",
                      (long long)a, (long long)b, (long long)list->n);
  Val v = list_new(e, b - a);
  for (int64_t i = a; i < b; i++)
    list_push(e, v.list, list->at[list->head + i]);
  e->steps += b - a;
  return v;
}

static Val list_index(Eval *e, const AstExpr *expr, List *list, Scope *scope) {
  const AstExpr *sub = expr->index.subscripts.at[0];
  if (expr->index.subscripts.n != 1 || sub->kind == EXPR_ELLIPSIS)
    return eval_error(e, expr->loc, "a list takes one index, as in l[i][j]");
  int64_t a, b;
  if (sub->kind == EXPR_RANGE)
    return range_bounds(e, sub, scope, &a, &b) ? list_slice(e, expr, list, a, b)
                                               : POISON;
  if (!eval_int(e, sub, scope, "an index", &a)) return POISON;
  if (a < 0 || a >= list->n)
    return eval_error(e, expr->loc, "index %lld is not within a list of %lld",
                      (long long)a, (long long)list->n);
  return list->at[list->head + a];
}

static Val eval_index(Eval *e, const AstExpr *expr, Scope *scope) {
  Val base = eval_value(e, expr->index.base, scope);
  switch (base.kind) {
  case VAL_LIST:
    return list_index(e, expr, base.list, scope);
  case VAL_TENSOR:
    return tensor_index(e, expr, base.tensor, scope);
  case VAL_POISON:
    return base;
  default:
    return eval_error(e, expr->loc, "%s has no elements",
                      val_describe(e, base));
  }
}

/* --- members --- */

Val eval_member_of(Eval *e, Instance *instance, const char *name, Loc loc) {
  Slot *slot = scope_own(instance->scope, name);
  if (slot) return eval_slot(e, slot, loc);
  eval_error(e, loc, "module '%s' has no member '%s'", instance->module->name,
             name);
  StrGuess guess = str_guess_start(name);
  for (int i = 0; i < instance->scope->n; i++)
    str_guess_try(&guess, instance->scope->slots[i].name);
  if (guess.best)
    eval_note(e, scope_own(instance->scope, guess.best)->loc,
              "did you mean '%s'?", guess.best);
  else
    eval_note(e, instance->module->name_loc, "it is declared here");
  return POISON;
}

static Val eval_member(Eval *e, const AstExpr *expr, Scope *scope) {
  Val base = eval_value(e, expr->member.base, scope);
  if (base.kind == VAL_INSTANCE)
    return eval_member_of(e, base.instance, expr->member.name, expr->loc);
  if (base.kind == VAL_POISON) return base;
  return eval_error(e, expr->loc, "%s has no members", val_describe(e, base));
}

/* --- the walker --- */

static Val eval_operator(Eval *e, const AstExpr *expr, Scope *scope) {
  AstOp op = expr->binary.op;
  if (op == AST_AND || op == AST_OR) return eval_logic(e, expr, scope);
  Val a = eval_value(e, expr->binary.left, scope);
  Val b = eval_value(e, expr->binary.right, scope);
  return e->stop ? POISON : eval_binary(e, expr->loc, op, a, b);
}

static Val eval_unary(Eval *e, const AstExpr *expr, Scope *scope) {
  Val v = eval_value(e, expr->unary.operand, scope);
  return expr->unary.op == AST_NEG ? eval_negate(e, expr->loc, v)
                                   : eval_not(e, expr->loc, v);
}

static Val eval_cond(Eval *e, const AstExpr *expr, Scope *scope) {
  bool test;
  if (!eval_condition(e, expr->cond.test, scope, "'? :'", &test)) return POISON;
  return eval_expr(e, test ? expr->cond.then : expr->cond.otherwise, scope);
}

Val eval_expr(Eval *e, const AstExpr *expr, Scope *scope) {
  if (e->stop) return POISON;
  if (++e->steps > e->step_limit || (expr->depth > 1 && (e->steps & 7) == 0))
    check_budget(e, expr->loc);
  switch (expr->kind) {
  case EXPR_INT:
    return val_int(expr->int_value);
  case EXPR_FLOAT:
    return val_float(expr->float_value);
  case EXPR_BOOL:
    return val_bool(expr->bool_value);
  case EXPR_STRING:
    return (Val){.kind = VAL_STRING, .string = expr->string};
  case EXPR_INFINITY:
    return val_float((double)INFINITY);
  case EXPR_NAME:
    return eval_name(e, expr, scope);
  case EXPR_LIST:
    return eval_list(e, expr, scope);
  case EXPR_UNARY:
    return eval_unary(e, expr, scope);
  case EXPR_BINARY:
    return eval_operator(e, expr, scope);
  case EXPR_RANGE:
    return eval_range(e, expr, scope);
  case EXPR_COND:
    return eval_cond(e, expr, scope);
  case EXPR_CALL:
    return eval_call(e, expr, scope);
  case EXPR_INDEX:
    return eval_index(e, expr, scope);
  case EXPR_MEMBER:
    return eval_member(e, expr, scope);
  case EXPR_FN:
    return (Val){.kind = VAL_CLOSURE,
                 .closure = closure_new(e, expr->fn, scope)};
  case EXPR_ELLIPSIS:
    return eval_error(e, expr->loc, "'..' can't stand here");
  case EXPR_COUNT:
    break;
  }
  return POISON;
}

Val eval_value(Eval *e, const AstExpr *expr, Scope *scope) {
  Val v = eval_expr(e, expr, scope);
  if (v.kind == VAL_TUPLE)
    return eval_error(
        e, expr->loc,
        "this gives %lld results where one is needed: let a, b = …;",
        (long long)v.list->n);
  if (v.kind == VAL_NONE)
    return eval_error(e, expr->loc,
                      "this gives no value: the function ends without a "
                      "'return' of one");
  return v;
}

bool eval_condition(Eval *e, const AstExpr *expr, Scope *scope,
                    const char *what, bool *out) {
  Val v = eval_value(e, expr, scope);
  if (v.kind == VAL_BOOL) return *out = v.bool_value, true;
  if (v.kind == VAL_TENSOR) {
    eval_error(
        e, expr->loc,
        "%s needs a bool at compile time, but this is known only at run time",
        what);
    eval_note(e, expr->loc, "select(c, a, b) chooses at run time");
  } else if (v.kind != VAL_POISON) {
    eval_error(e, expr->loc, "%s needs a bool, not %s", what,
               val_describe(e, v));
  }
  eval_stop(e);
  return false;
}

bool eval_int(Eval *e, const AstExpr *expr, Scope *scope, const char *what,
              int64_t *out) {
  Val v = eval_value(e, expr, scope);
  if (v.kind == VAL_INT) return *out = v.int_value, true;
  if (v.kind != VAL_POISON)
    eval_error(e, ast_expr_start(expr), "%s needs an int, not %s", what,
               val_describe(e, v));
  return false;
}
