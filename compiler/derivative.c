/* Functions that state their derivative.
 *
 * In: such a function's call, its body just traced. Out: pp.with_derivative on
 * its results, and the function
 * @derivative.N(y…, dy…, a…, captured…), traced from the `derivative` block,
 * that returns one adjoint for each float tensor argument a. What the block
 * uses of the body becomes a captured argument on demand. Inside another such
 * function, and where nothing is differentiated, the body alone is inlined. */
#include "compiler/eval.h"

bool derivative_begin(Eval *e, const Closure *closure, Scope *scope,
                      Guard *out_guard, Val *out_passed, Loc loc) {
  const AstParams *params = &closure->fn->params;
  Tensor **allowed = eval_alloc(e, (size_t)params->n * sizeof *allowed);
  int n = 0;
  for (int i = 0; i < params->n; i++) {
    Val v = out_passed[i] = scope->slots[i].value;
    if (v.kind == VAL_TENSOR) allowed[n++] = v.tensor;
    if (v.kind != VAL_LIST) continue;
    for (int64_t k = 0; k < v.list->n; k++)
      if (v.list->at[v.list->head + k].kind == VAL_TENSOR) {
        eval_error(e, loc,
                   "'%s' is a list of tensors: a function that states its "
                   "derivative takes each by itself",
                   params->at[i].name);
        return false;
      }
  }
  *out_guard = (Guard){.floor = e->serial, .n = n, .allowed = allowed};
  return true;
}

/* One call's pieces. */
typedef struct {
  const Closure *closure;
  Scope *scope;
  const Val *passed;
  int n_results, n_arguments;
  Val *results;
  Tensor **arguments; /* float tensors among those passed, in order */
  const char **names; /* of their parameters */
  Loc loc;
} Stated;

static bool collect(Eval *e, Stated *d, Val result) {
  const AstFn *fn = d->closure->fn;
  bool several = result.kind == VAL_TUPLE;
  d->n_results = several ? (int)result.list->n : 1;
  d->results = eval_alloc(e, (size_t)d->n_results * sizeof *d->results);
  for (int i = 0; i < d->n_results; i++) {
    Val v = d->results[i] = several ? result.list->at[i] : result;
    if (v.kind == VAL_POISON) return false;
    if (v.kind == VAL_TENSOR && !v.tensor->number &&
        type_is_real(v.tensor->type))
      continue;
    eval_error(e, fn->derivative->loc,
               "a function that states its derivative returns float tensors, "
               "but result %d is %s",
               i, val_describe(e, v));
    return false;
  }
  if (fn->derivative->names.n != 2 * d->n_results) {
    eval_error(e, fn->derivative->loc,
               "the function has %d result%s: a derivative names them and "
               "their adjoints, here are %d names",
               d->n_results, d->n_results == 1 ? "" : "s",
               fn->derivative->names.n);
    return false;
  }
  d->arguments = eval_alloc(e, (size_t)fn->params.n * sizeof *d->arguments);
  d->names = eval_alloc(e, (size_t)fn->params.n * sizeof *d->names);
  for (int i = 0; i < fn->params.n; i++) {
    Val v = d->passed[i];
    if (v.kind != VAL_TENSOR || v.tensor->number ||
        !type_is_real(v.tensor->type))
      continue;
    d->names[d->n_arguments] = fn->params.at[i].name;
    d->arguments[d->n_arguments++] = v.tensor;
  }
  return true;
}

static Val add_argument(Eval *e, Type type, Loc loc) {
  return tensor_wrap(e, loc, func_add_arg(e->ir, e->trace->func, type, loc),
                     false);
}

static bool let_hides(const Scope *scope, int n_params, const char *name) {
  for (int i = n_params; i < scope->n; i++)
    if (scope->slots[i].name == name && scope->slots[i].kind == SLOT_LET)
      return true;
  return false;
}

/* Arguments of @derivative.N, and the names that the block sees. */
static Scope *open_block(Eval *e, Stated *d) {
  const AstFn *fn = d->closure->fn;
  const AstDerivative *stated = fn->derivative;
  Scope *scope = scope_push(e, d->scope);
  for (int i = 0; i < fn->params.n; i++) {
    const AstParam *param = &fn->params.at[i];
    if (!let_hides(d->scope, fn->params.n, param->name))
      scope_declare(e, scope, SLOT_ARGUMENT, (AstName){param->loc, param->name},
                    d->passed[i]);
  }
  for (int i = 0; i < 2 * d->n_results; i++) {
    const Tensor *y = d->results[i % d->n_results].tensor;
    Type type = i < d->n_results ? y->type : type_adjoint(e->ir, y->type);
    Val v = add_argument(e, type, stated->names.at[i].loc);
    if (i < d->n_results)
      ptrmap_put(e->arena, &e->trace->known, y->v.ptr, v.tensor);
    scope_declare(e, scope, SLOT_LET, stated->names.at[i], v);
  }
  for (int i = 0; i < d->n_arguments; i++) {
    Val v = add_argument(e, d->arguments[i]->type, d->loc);
    if (!ptrmap_get(&e->trace->known, d->arguments[i]->v.ptr))
      ptrmap_put(e->arena, &e->trace->known, d->arguments[i]->v.ptr, v.tensor);
  }
  return scope;
}

static bool adjoints(Eval *e, const Stated *d, Val result, Value *out) {
  Loc loc =
      result.kind == VAL_NONE ? d->closure->fn->derivative->loc : e->returned;
  int64_t n = result.kind == VAL_TUPLE  ? result.list->n
              : result.kind == VAL_NONE ? 0
                                        : 1;
  if (result.kind == VAL_POISON) return false;
  if (n != d->n_arguments) {
    eval_error(e, loc,
               "a derivative returns one adjoint for each float tensor "
               "argument: here are %lld for %d",
               (long long)n, d->n_arguments);
    return false;
  }
  for (int i = 0; i < n; i++) {
    Val v = result.kind == VAL_TUPLE ? result.list->at[i] : result;
    out[i] = tensor_as(e, loc, v, type_adjoint(e->ir, d->arguments[i]->type),
                       eval_printf(e, "the adjoint of '%s'", d->names[i]));
    if (value_is_null(out[i])) return false;
  }
  return true;
}

/* Traces the block; NULL after an error. */
static Trace *trace_block(Eval *e, Stated *d, Guard *guard, const char *name) {
  const AstFn *fn = d->closure->fn;
  Guard *outer = e->guard;
  Trace *trace = trace_open(e, TRACE_DERIVATIVE, name, fn->derivative->loc);
  Value *out = eval_alloc(e, (size_t)d->n_arguments * sizeof *out);
  Scope *scope = open_block(e, d);
  Frame frame = {.scope = scope, .own = true};
  e->guard = guard;
  Flow flow = exec_stmts(e, fn->derivative->body, &frame);
  bool ok = flow == FLOW_RETURN
                ? adjoints(e, d, e->result, out)
                : flow != FLOW_STOP && adjoints(e, d, NONE, out);
  e->guard = outer;
  scope_pop(e, scope);
  trace_close(e, trace, fn->derivative->loc, ok ? d->n_arguments : 0, out);
  return ok && !e->stop ? trace : NULL;
}

static Val attach(Eval *e, const Stated *d, const Trace *trace,
                  const char *name) {
  int n = d->n_results, m = d->n_arguments, c = trace->captured.n;
  Value *in = eval_alloc(e, (size_t)(n + m + c) * sizeof *in);
  Type *types = eval_alloc(e, (size_t)n * sizeof *types);
  for (int i = 0; i < n; i++)
    in[i] = d->results[i].tensor->v, types[i] = d->results[i].tensor->type;
  for (int i = 0; i < m; i++) in[n + i] = d->arguments[i]->v;
  for (int i = 0; i < c; i++) in[n + m + i] = trace->captured.at[i]->v;
  Builder *b = trace_builder(e, d->loc);
  if (!b) return POISON;
  Attr attrs[] = {{.name = "derivative", .kind = ATTR_KIND_SYMBOL, .s = name},
                  {.name = "n_results", .kind = ATTR_KIND_INT, .i = n},
                  {.name = "n_arguments", .kind = ATTR_KIND_INT, .i = m}};
  Op op = ir_build(b, OP_WITH_DERIVATIVE, n + m + c, in, n, types, 3, attrs);
  if (op_is_null(op)) return tensor_wrap(e, d->loc, (Value){0}, false);
  if (n == 1) return tensor_wrap(e, d->loc, op_result(op, 0), false);
  Val tuple = list_new(e, n);
  tuple.kind = VAL_TUPLE;
  for (int i = 0; i < n; i++)
    list_push(e, tuple.list, tensor_wrap(e, d->loc, op_result(op, i), false));
  return tuple;
}

Val derivative_finish(Eval *e, const Closure *closure, Scope *scope,
                      Guard *guard, const Val *passed, Val result, Loc loc) {
  if (!e->trace || e->trace->kind != TRACE_LOSS || e->guard) return result;
  Stated d = {.closure = closure, .scope = scope, .passed = passed, .loc = loc};
  if (!collect(e, &d, result)) return POISON;
  if (d.n_arguments == 0) return result;
  const char *name = eval_printf(e, "derivative.%d", e->n_derivatives++);
  Trace *trace = trace_block(e, &d, guard, name);
  return trace ? attach(e, &d, trace, name) : POISON;
}
