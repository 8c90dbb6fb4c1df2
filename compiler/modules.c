/* Module instances: parameters, members, outputs, the end of a stage.
 *
 * In: a module and arguments. Out: an Instance with its scope, and one
 * pp.parameter for each parameter, in declaration order, depth first, named by
 * its path ("h.0.attn.c_attn.weight"). A parameter is read by one pp.param for
 * each stage that uses it. */
#include <math.h>
#include <string.h>

#include "compiler/eval.h"

enum { MAX_ARRAY = 1 << 20, MAX_STAGES = 1 << 16 };

static const char *join_path(Eval *e, const char *path, const char *name) {
  return path[0] ? eval_printf(e, "%s.%s", path, name) : name;
}

const char *instance_path(Eval *e) {
  const Instance *instance =
      e->frames.n > 0 ? VEC_LAST(&e->frames).instance : NULL;
  return instance ? instance->path : "";
}

/* --- parameters --- */

BUILTIN(init) {
  const char *name = builtin_name_of(call);
  bool normal = strcmp(name, "normal") == 0;
  for (int i = 0; i < 2; i++) {
    if (call->v[i].kind == VAL_POISON) return POISON;
    if (!val_is_number(call->v[i]) || !isfinite(val_number(call->v[i])))
      return eval_error(e, call->at[i], "'%s' needs finite numbers, not %s",
                        name, val_describe(e, call->v[i]));
  }
  double a = val_number(call->v[0]), b = val_number(call->v[1]);
  if (normal && b < 0)
    return eval_error(e, call->at[1], "a standard deviation can't be negative");
  if (!normal && b < a)
    return eval_error(e, call->at[1], "uniform(a, b) needs a <= b");
  Init *init = eval_alloc(e, sizeof *init);
  *init = (Init){normal ? PP_INIT_NORMAL : PP_INIT_UNIFORM, a, b};
  return (Val){.kind = VAL_INIT, .init = init};
}

static const char *init_name(pp_init_kind kind) {
  static const char *const names[] = {"zeros", "ones", "normal", "uniform"};
  return names[kind];
}

static void declare_parameter(Eval *e, const Param *param) {
  Builder b = {
      .ir = e->ir, .block = ir_body(e->ir), .loc = param->loc, .stage = -1};
  Attr attrs[] = {
      {.name = "sym", .kind = ATTR_KIND_STRING, .s = param->name},
      {.name = "type", .kind = ATTR_KIND_TYPE, .type = param->type},
      {.name = "init",
       .kind = ATTR_KIND_STRING,
       .s = init_name(param->init.kind)},
      {.name = "a", .kind = ATTR_KIND_FLOAT, .f = param->init.a},
      {.name = "b", .kind = ATTR_KIND_FLOAT, .f = param->init.b},
  };
  ir_build(&b, OP_PARAMETER, 0, NULL, 0, NULL, 5, attrs);
}

/* False when a member, argument, let or function of that name is there. */
static bool check_free(Eval *e, Instance *instance, AstName name) {
  const Slot *slot = scope_own(instance->scope, name.name);
  if (!slot) return true;
  if (slot->kind == SLOT_ARGUMENT)
    eval_error(e, name.loc, "'%s' is already an argument of the module",
               name.name);
  else
    eval_error(e, name.loc, "'%s' is declared twice in module '%s'", name.name,
               instance->module->name);
  eval_note(e, slot->loc, "it is declared here first");
  return false;
}

static bool eval_init(Eval *e, const AstExpr *expr, Scope *scope, Init *out) {
  *out = (Init){.kind = PP_INIT_ZEROS};
  if (!expr) return true;
  Val v = eval_value(e, expr, scope);
  if (v.kind == VAL_INIT) return *out = *v.init, true;
  if (v.kind != VAL_POISON) {
    eval_error(e, ast_expr_start(expr), "%s is no initial value",
               val_describe(e, v));
    eval_note(e, ast_expr_start(expr),
              "zeros, ones, normal(mean, std) and uniform(a, b) are");
  }
  return false;
}

static void exec_param(Eval *e, const AstStmt *s, Frame *frame) {
  Instance *instance = frame->body->instance;
  AstName name = s->param.name;
  Type type;
  Init init;
  if (!check_free(e, instance, name)) return;
  bool ok = shape_eval(e, s->param.shape, frame->scope, e->real, &type);
  ok = eval_init(e, s->param.init, frame->scope, &init) && ok;
  if (ok && (!type_is_real(type) || type_dtype(type) == PP_BF16)) {
    eval_error(e, s->param.shape->dtype.loc,
               "a parameter is f32 or f64, not %s",
               dtype_name(type_dtype(type)));
    ok = false;
  }
  if (!ok) {
    scope_declare(e, instance->scope, SLOT_MEMBER, name, POISON);
    return;
  }
  Param *param = eval_alloc(e, sizeof *param);
  *param = (Param){.name = join_path(e, instance->path, name.name),
                   .type = type,
                   .loc = name.loc,
                   .init = init};
  VEC_PUSH(e->arena, &e->params, param);
  declare_parameter(e, param);
  scope_declare(e, instance->scope, SLOT_MEMBER, name,
                (Val){.kind = VAL_PARAM, .param = param});
}

static bool may_read(Eval *e, Loc loc, const char *what, const char *name) {
  TraceKind kind = e->trace ? e->trace->kind : TRACE_NUMBERS;
  if (e->guard) {
    eval_error(e, loc,
               "a function that states its derivative uses no tensor but its "
               "arguments: pass '%s' to it",
               name);
  } else if (!e->trace) {
    eval_error(e, loc,
               "%s '%s' can only be read inside a function that the loss calls",
               what, name);
  } else if (kind != TRACE_LOSS && kind != TRACE_GENERATE) {
    eval_error(e, loc, "%s '%s' can't be read here, only in the loss", what,
               name);
  } else {
    return true;
  }
  return false;
}

static Val read_leaf(Eval *e, Loc loc, OpId op, const char *attr,
                     const char *name, Type type) {
  Builder *b = trace_builder(e, loc);
  if (!b) return POISON;
  Attr a = {.name = attr, .kind = ATTR_KIND_STRING, .s = name};
  Op made = ir_build(b, op, 0, NULL, 1, &type, 1, &a);
  return tensor_wrap(e, loc, op_is_null(made) ? (Value){0} : op_result(made, 0),
                     false);
}

Val param_read(Eval *e, Param *param, Loc loc) {
  if (!may_read(e, loc, "parameter", param->name)) return POISON;
  while (param->read.n <= e->stage) VEC_PUSH(e->arena, &param->read, NULL);
  Tensor *known = param->read.at[e->stage];
  if (known && known->trace == e->trace)
    return (Val){.kind = VAL_TENSOR, .tensor = known};
  Val v = read_leaf(e, loc, OP_PARAM, "param", param->name, param->type);
  if (v.kind == VAL_TENSOR) param->read.at[e->stage] = v.tensor;
  return v;
}

Val source_read(Eval *e, Source *source, Loc loc) {
  if (e->trace && e->trace->kind == TRACE_GENERATE)
    return eval_error(e, loc, "there is no data while generating");
  if (!may_read(e, loc, "data", source->name)) return POISON;
  if (source->read && source->read->trace == e->trace)
    return (Val){.kind = VAL_TENSOR, .tensor = source->read};
  Val v = read_leaf(e, loc, OP_DATA, "source", source->name, source->type);
  if (v.kind == VAL_TENSOR) source->read = v.tensor;
  return v;
}

/* --- members --- */

/* The module that a member's call names: looked up outside the module first, so
 * that `mlp: mlp(d)` is fine. */
static Val member_callee(Eval *e, const AstExpr *callee, Frame *frame) {
  if (callee->kind == EXPR_NAME) {
    const AstItem *item =
        dsl_find_item(frame->body->instance->module->file, callee->name);
    if (item && item->kind == ITEM_MODULE)
      return eval_item(e, item, callee->loc);
  }
  return eval_value(e, callee, frame->scope);
}

static Val make_member(Eval *e, const AstExpr *expr, Frame *frame,
                       const char *path) {
  if (expr->kind == EXPR_COND) {
    bool test;
    if (!eval_condition(e, expr->cond.test, frame->scope, "'? :'", &test))
      return POISON;
    return make_member(e, test ? expr->cond.then : expr->cond.otherwise, frame,
                       path);
  }
  if (expr->kind != EXPR_CALL)
    return eval_error(
        e, ast_expr_start(expr),
        "a member is made by a call of a module: name: module(…);");
  Val callee = member_callee(e, expr->call.callee, frame);
  if (callee.kind == VAL_POISON) return callee;
  if (callee.kind != VAL_ITEM || callee.item->kind != ITEM_MODULE)
    return eval_error(e, expr->loc,
                      "a member is an instance of a module, but this is %s",
                      val_describe(e, callee));
  Args args;
  Instance *made = NULL;
  if (args_eval(e, expr->call.args, frame->scope, expr->loc, &args))
    made = module_instantiate(e, callee.item, args, path);
  if (!e->fatal) args_release(e, &args);
  return made ? (Val){.kind = VAL_INSTANCE, .instance = made} : POISON;
}

static void member_single(Eval *e, const AstStmt *s, Frame *frame) {
  Instance *instance = frame->body->instance;
  if (!check_free(e, instance, s->member.name)) return;
  Val v = make_member(e, s->member.value, frame,
                      join_path(e, instance->path, s->member.name.name));
  scope_declare(e, instance->scope, SLOT_MEMBER, s->member.name, v);
}

static const char *element_path(Eval *e, const Instance *instance,
                                const char *name, int64_t i) {
  return eval_printf(e, "%s.%lld", join_path(e, instance->path, name),
                     (long long)i);
}

static void member_array(Eval *e, const AstStmt *s, Frame *frame) {
  Instance *instance = frame->body->instance;
  int64_t n;
  if (!check_free(e, instance, s->member.name)) return;
  Val list = POISON;
  if (eval_int(e, s->member.index, frame->scope, "the length of an array",
               &n)) {
    if (n < 0 || n > MAX_ARRAY) {
      eval_error(e, ast_expr_start(s->member.index), "an array of %lld modules",
                 (long long)n);
    } else {
      list = list_new(e, n);
      list.list->frozen = true;
      for (int64_t i = 0; i < n && !e->stop; i++)
        list_push(
            e, list.list,
            make_member(e, s->member.value, frame,
                        element_path(e, instance, s->member.name.name, i)));
    }
  }
  scope_declare(e, instance->scope, SLOT_MEMBER, s->member.name, list);
}

/* `h[i]: block(d)` inside a `for`: element i, which must be the next one. */
static void member_element(Eval *e, const AstStmt *s, Frame *frame) {
  Instance *instance = frame->body->instance;
  AstName name = s->member.name;
  int64_t i;
  if (!eval_int(e, s->member.index, frame->scope, "an element's number", &i))
    return;
  Slot *slot = scope_own(instance->scope, name.name);
  bool is_array =
      slot && slot->kind == SLOT_MEMBER && slot->value.kind == VAL_LIST;
  if (slot && slot->value.kind == VAL_POISON) return;
  if (!is_array && !check_free(e, instance, name)) return;
  int64_t next = is_array ? slot->value.list->n : 0;
  if (i != next) {
    if (!is_array) scope_declare(e, instance->scope, SLOT_MEMBER, name, POISON);
    eval_error(e, ast_expr_start(s->member.index),
               "element %lld of '%s' can't be made here: the next one is %lld",
               (long long)i, name.name, (long long)next);
    return;
  }
  Val list = is_array ? slot->value : list_new(e, 4);
  list.list->frozen = true;
  if (!is_array) scope_declare(e, instance->scope, SLOT_MEMBER, name, list);
  list_push(e, list.list,
            make_member(e, s->member.value, frame,
                        element_path(e, instance, name.name, i)));
}

Flow exec_module_stmt(Eval *e, const AstStmt *s, Frame *frame) {
  if (s->kind == STMT_PARAM)
    exec_param(e, s, frame);
  else if (!s->member.index)
    member_single(e, s, frame);
  else if (frame->body->loops > 0)
    member_element(e, s, frame);
  else
    member_array(e, s, frame);
  return e->stop ? FLOW_STOP : FLOW_NEXT;
}

Instance *module_instantiate(Eval *e, const AstItem *item, Args args,
                             const char *path) {
  Instance *instance = eval_alloc(e, sizeof *instance);
  if (!call_enter(e, args.loc, item->name, instance)) return NULL;
  Scope *scope = scope_push(e, eval_file_scope(e, item->file));
  *instance =
      (Instance){.path = path, .module = item, .scope = scope, .loc = args.loc};
  scope->captured = scope->open = true;
  scope->instance = instance;
  bool ok = bind_params(e, &item->decl.params, args, NULL, scope, "module",
                        item->name, item->name_loc);
  if (ok) {
    Body body = {.instance = instance, .hoisted = scope};
    Frame frame = {.scope = scope, .own = true, .body = &body};
    hoist_functions(e, item->decl.body, scope, &instance->call);
    ok = exec_stmts(e, item->decl.body, &frame) != FLOW_STOP;
  }
  call_leave(e);
  return ok ? instance : NULL;
}

/* --- stages and outputs --- */

Flow exec_stage_end(Eval *e, const AstStmt *s) {
  TraceKind kind = e->trace ? e->trace->kind : TRACE_NUMBERS;
  if (e->guard) {
    eval_error(e, s->loc,
               "a stage can't end in a function that states its derivative");
  } else if (kind != TRACE_LOSS && kind != TRACE_GENERATE) {
    eval_error(e, s->loc,
               "a stage can only end in a function that the loss calls");
  } else if (e->stage + 1 >= MAX_STAGES) {
    eval_fatal(e, s->loc, "more than %d stages", MAX_STAGES);
  } else {
    e->stage++;
    e->last_stage_end = s->loc;
  }
  return e->stop ? FLOW_STOP : FLOW_NEXT;
}

/* x as an f64 scalar, reduced over its elements; for concat x itself. */
static Value reduce_output(Builder *b, Value x, const char *how) {
  Type t = value_type(x);
  int64_t axes[PP_MAX_RANK], n = type_elements(t);
  for (int i = 0; i < type_rank(t); i++) axes[i] = i;
  x = ir_cast(b, x, PP_F64);
  if (value_is_null(x)) return x;
  if (strcmp(how, "concat") == 0)
    return type_rank(t) > 0 ? x : ir_reshape(b, x, 1, (int64_t[]){1});
  x = ir_reduce(b, strcmp(how, "max") == 0 ? OP_REDUCE_MAX : OP_REDUCE_SUM, x,
                type_rank(t), axes);
  if (value_is_null(x) || strcmp(how, "mean") != 0 || n == 1) return x;
  Value count = ir_constant(b, value_type(x), (double)n);
  return ir_map(b, OP_DIV, 2, (Value[]){x, count});
}

static bool check_output(Eval *e, const AstStmt *s, const char *name) {
  static const char *const hows[] = {"mean", "sum", "max", "concat"};
  const char *how = s->output.how.name;
  bool known = false;
  for (int i = 0; i < 4; i++) known = known || strcmp(how, hows[i]) == 0;
  const Loc *before = map_get(&e->outputs, name);
  if (!known) {
    eval_error(e, s->output.how.loc,
               "an output is reduced by mean, sum, max or concat, not by '%s'",
               how);
  } else if (!e->trace || e->trace->kind != TRACE_LOSS) {
    eval_error(e, s->loc,
               "an output can only stand in a function that the loss calls");
  } else if (before) {
    eval_error(e, s->output.name.loc, "there are two outputs '%s'", name);
    eval_note(e, *before, "the first is made by the call here");
  } else {
    return true;
  }
  return false;
}

static void build_output(Eval *e, const AstStmt *s, const char *name, Val v) {
  Loc loc = s->output.name.loc;
  Value x = v.kind == VAL_TENSOR
                ? tensor_use(e, loc, v.tensor)
                : tensor_constant(e, loc, v, type_scalar(e->ir, PP_F64));
  Builder *b = value_is_null(x) ? NULL : trace_builder(e, loc);
  if (!b) return;
  x = reduce_output(b, x, s->output.how.name);
  if (value_is_null(x)) return;
  Attr attrs[] = {
      {.name = "output", .kind = ATTR_KIND_STRING, .s = name},
      {.name = "kind", .kind = ATTR_KIND_STRING, .s = s->output.how.name}};
  ir_build(b, OP_OUTPUT, 1, &x, 0, NULL, 2, attrs);
  e->ops += 4;
}

Flow exec_output(Eval *e, const AstStmt *s, Scope *scope) {
  Val v = eval_value(e, s->output.value, scope);
  const char *name = join_path(e, instance_path(e), s->output.name.name);
  if (v.kind == VAL_POISON || (e->trace && e->trace->kind == TRACE_GENERATE))
    return FLOW_NEXT;
  if (!check_output(e, s, name)) return FLOW_NEXT;
  if (v.kind != VAL_TENSOR && !val_is_number(v)) {
    eval_error(e, s->output.value->loc,
               "an output is a tensor or a number, not %s", val_describe(e, v));
    return FLOW_NEXT;
  }
  Loc *place = eval_alloc(e, sizeof *place);
  *place = e->frames.n > 0 ? VEC_LAST(&e->frames).loc : s->loc;
  map_put(e->arena, &e->outputs, name, place);
  build_output(e, s, name, v);
  return FLOW_NEXT;
}
