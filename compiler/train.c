/* The `train` block: settings, data sources, the model, the loss.
 *
 * In: the block and what the command line puts over it. Out: module attributes,
 * pp.parameter and pp.source,
 * @loss (or @generate) and, through optimizer.c, the functions of the update.
 * An option replaces the file's value before that is evaluated. Every value is
 * checked where it stands. */
#include <math.h>
#include <string.h>

#include "compiler/eval.h"

/* --- ints: ranks, microbatch, microbatches, steps --- */

static const struct {
  const char *name;
  int64_t min, max;
} setting_limits[SETTING_COUNT] = {
    [SETTING_RANKS] = {"ranks", 1, 1 << 16},
    [SETTING_MICROBATCH] = {"microbatch", 1, 1 << 24},
    [SETTING_MICROBATCHES] = {"microbatches", 1, 1 << 20},
    [SETTING_STEPS] = {"steps", 0, (int64_t)1 << 40},
};

static bool check_setting(Eval *e, SettingId id, Loc loc, int64_t v) {
  if (v >= setting_limits[id].min && v <= setting_limits[id].max) return true;
  const char *dashes = loc.line == 0 ? "--" : "";
  if (v < setting_limits[id].min)
    eval_error(e, loc, "'%s%s' must be at least %lld, not %lld", dashes,
               setting_limits[id].name, (long long)setting_limits[id].min,
               (long long)v);
  else
    eval_error(e, loc, "'%s%s' is too large: %lld", dashes,
               setting_limits[id].name, (long long)v);
  return false;
}

/* Evaluates in `train`, outside whatever is traced. */
static Val train_value(Eval *e, const AstExpr *expr) {
  Trace *trace = e->trace;
  e->trace = NULL;
  Val v = eval_value(e, expr, e->train_scope);
  e->trace = trace;
  return v;
}

int64_t setting_value(Eval *e, SettingId id, Loc loc, bool *out_ok) {
  Setting *s = &e->settings[id];
  *out_ok = s->state == SETTING_DONE;
  if (s->state == SETTING_DONE) return s->value;
  if (s->state == SETTING_RUNNING) {
    eval_error(e, s->loc, "'%s' depends on itself", setting_limits[id].name);
    eval_note(e, loc, "it is needed here to compute its own value");
  }
  if (s->state != SETTING_FRESH) return 0;
  s->state = SETTING_RUNNING;
  bool ok = true;
  if (s->expr) {
    Val v = train_value(e, s->expr);
    ok = v.kind == VAL_INT;
    if (!ok && v.kind != VAL_POISON)
      eval_error(e, s->loc, "'%s' needs an int, not %s",
                 setting_limits[id].name, val_describe(e, v));
    s->value = ok ? v.int_value : 0;
  }
  ok = ok && check_setting(e, id, s->loc, s->value);
  s->state = ok ? SETTING_DONE : SETTING_FAILED;
  *out_ok = ok;
  return s->value;
}

static void prepare_setting(Eval *e, SettingId id, const AstExpr *expr,
                            int64_t override) {
  Setting *s = &e->settings[id];
  *s = (Setting){.expr = expr, .loc = expr ? ast_expr_start(expr) : (Loc){0}};
  if (override >= 0) *s = (Setting){.value = override};
}

static const AstExpr *entry_value(const AstTrain *train, const char *key) {
  const AstTrainEntry *entry = ast_train_find(train, key);
  return entry && entry->args.n > 0 ? entry->args.at[0].value : NULL;
}

static const AstExpr *batch_value(const AstTrain *train, const char *name) {
  const AstTrainEntry *entry = ast_train_find(train, "batch");
  for (int i = 0; entry && i < entry->args.n; i++)
    if (entry->args.at[i].name && strcmp(entry->args.at[i].name, name) == 0)
      return entry->args.at[i].value;
  return NULL;
}

static void declare_setting(Eval *e, SettingId id) {
  const char *name = map_get(&e->program->names, setting_limits[id].name);
  if (name)
    scope_declare(e, e->train_scope, SLOT_MEMBER,
                  (AstName){e->settings[id].loc, name},
                  (Val){.kind = VAL_SETTING, .setting = id});
}

static bool run_settings(Eval *e, const AstTrain *train) {
  const CompileOptions *o = e->options;
  prepare_setting(e, SETTING_RANKS, entry_value(train, "ranks"), o->ranks);
  prepare_setting(e, SETTING_MICROBATCH, batch_value(train, "microbatch"),
                  o->microbatch);
  prepare_setting(e, SETTING_MICROBATCHES, batch_value(train, "microbatches"),
                  o->microbatches);
  prepare_setting(e, SETTING_STEPS, entry_value(train, "steps"), o->steps);
  for (int i = 0; i < SETTING_COUNT; i++) declare_setting(e, (SettingId)i);
  bool ok = true, one;
  for (int i = 0; i < SETTING_COUNT; i++) {
    setting_value(e, (SettingId)i, e->settings[i].loc, &one);
    ok = ok && one;
  }
  return ok;
}

/* --- dtype, seed, nonfinite, loss_scale --- */

static void run_dtype(Eval *e, const AstTrain *train) {
  const AstExpr *expr = entry_value(train, "dtype");
  const char *option = e->options->dtype;
  e->real = PP_F32;
  if (option) {
    if (strcmp(option, "f64") == 0)
      e->real = PP_F64;
    else if (strcmp(option, "f32") != 0)
      eval_error(e, (Loc){0},
                 "--dtype: '%s' is no dtype of a model: f32 and f64 are",
                 option);
  } else if (expr) {
    Val v = train_value(e, expr);
    if (v.kind == VAL_DTYPE && (v.dtype == PP_F32 || v.dtype == PP_F64))
      e->real = v.dtype;
    else if (v.kind != VAL_POISON)
      eval_error(e, ast_expr_start(expr), "'dtype' is f32 or f64, not %s",
                 val_describe(e, v));
  }
}

/* Of an entry, as --precision has it; null after an error. */
static const char *precision_name(Eval *e, const AstExpr *expr) {
  Val v = train_value(e, expr);
  if (v.kind == VAL_DTYPE && (v.dtype == PP_F32 || v.dtype == PP_BF16))
    return dtype_name(v.dtype);
  if (v.kind == VAL_WORD && strcmp(v.string, "tf32") == 0) return v.string;
  if (v.kind != VAL_POISON)
    eval_error(e, ast_expr_start(expr),
               "'precision' is f32, tf32 or bf16, not %s", val_describe(e, v));
  return NULL;
}

/* What f32 operands of products are rounded to. */
static void run_precision(Eval *e, const AstTrain *train) {
  const AstExpr *expr = entry_value(train, "precision");
  const char *name = e->options->precision;
  Loc loc = expr ? ast_expr_start(expr) : (Loc){0};
  if (expr && !name) name = precision_name(e, expr);
  e->narrows = name && strcmp(name, "bf16") == 0;
  e->tf32 = name && strcmp(name, "tf32") == 0;
  if ((e->narrows || e->tf32) && e->real != PP_F32)
    eval_error(e, loc, "'precision %s' is for models of f32, this one is %s",
               name, dtype_name(e->real));
  if (e->tf32 && e->options->target != PP_TARGET_CUDA)
    eval_error(e, loc,
               "'precision tf32' needs --target=cuda: CPUs have no TF32 "
               "(--precision=f32 computes in f32)");
}

static int64_t run_seed(Eval *e, const AstTrain *train) {
  const AstExpr *expr = entry_value(train, "seed");
  int64_t seed = 0;
  if (e->options->has_seed) return e->options->seed;
  if (expr) {
    Val v = train_value(e, expr);
    if (v.kind == VAL_INT)
      seed = v.int_value;
    else if (v.kind != VAL_POISON)
      eval_error(e, ast_expr_start(expr), "'seed' needs an int, not %s",
                 val_describe(e, v));
  }
  return seed;
}

/* Names of the file don't hide its words, which dsl/resolve.c has checked. */
static const char *run_nonfinite(const AstTrain *train) {
  const AstExpr *expr = entry_value(train, "nonfinite");
  bool skips = expr && expr->kind == EXPR_NAME && strcmp(expr->name, "skip") == 0;
  return skips ? "skip" : "stop";
}

/* A dynamic scale is found by steps that are too large: they are skipped. */
static const char *run_loss_scale(Eval *e, const AstTrain *train, LossScale *out) {
  const AstExpr *expr = entry_value(train, "loss_scale"), *word = entry_value(train, "nonfinite");
  const char *nonfinite = run_nonfinite(train);
  *out = (LossScale){.first = 1};
  if (expr) *out = loss_scale_of(e, train_value(e, expr), ast_expr_start(expr));
  if (out->interval == 0) return nonfinite;
  if (word && strcmp(nonfinite, "stop") == 0) {
    eval_error(e, ast_expr_start(word), "a dynamic loss scale needs 'nonfinite skip'");
    eval_note(e, ast_expr_start(expr), "it is asked for here");
  }
  return "skip";
}

/* --- data --- */

static const char *source_kind_name(pp_data_kind kind) {
  static const char *const names[] = {"bytes",    "tokens16",  "f32_file",
                                      "i32_file", "synthetic", "synthetic"};
  return names[kind];
}

static const char *order_name(pp_data_order order) {
  static const char *const names[] = {"random", "sequential", "shuffled"};
  return names[order];
}

/* Windows come at random or one after the other, rows one after the other or
 * shuffled. */
static bool source_order(Eval *e, const BuiltinCall *call, Source *s) {
  bool windows = s->kind == PP_DATA_BYTES || s->kind == PP_DATA_TOKENS16;
  s->order = windows ? PP_ORDER_RANDOM : PP_ORDER_SEQUENTIAL;
  Val v = call->v[2];
  if (v.kind == VAL_UNSET) return true;
  if (v.kind == VAL_POISON) return false;
  bool word = v.kind == VAL_WORD || v.kind == VAL_STRING;
  if (word && strcmp(v.string, "sequential") == 0)
    return s->order = PP_ORDER_SEQUENTIAL, true;
  if (word && !windows && strcmp(v.string, "shuffled") == 0)
    return s->order = PP_ORDER_SHUFFLED, true;
  eval_error(e, call->at[2], "'order' of %s is %s, not %s",
             source_kind_name(s->kind),
             windows ? "sequential (or left out)" : "sequential or shuffled",
             val_describe(e, v));
  return false;
}

static bool source_size(Eval *e, const BuiltinCall *call, int i,
                        const char *what, int64_t *out) {
  if (!builtin_int(e, call, i, what, out)) return false;
  if (*out >= 1 && *out <= INT32_MAX) return true;
  eval_error(e, call->at[i], "%s must be from 1 to 2^31 - 1, not %lld", what,
             (long long)*out);
  return false;
}

static bool source_path(Eval *e, const BuiltinCall *call, Source *s) {
  Val v = call->v[0];
  if (v.kind == VAL_STRING && v.string[0]) return s->path = v.string, true;
  if (v.kind != VAL_POISON)
    eval_error(e, call->at[0], "'%s' needs a path, not %s",
               builtin_name_of(call),
               v.kind == VAL_STRING ? "\"\"" : val_describe(e, v));
  return false;
}

BUILTIN(source) {
  static const char *const names[] = {"bytes", "tokens16", "f32_file",
                                      "i32_file", "synthetic"};
  Source *s = eval_alloc(e, sizeof *s);
  s->loc = call->loc;
  for (int i = 0; i < 5; i++)
    if (strcmp(builtin_name_of(call), names[i]) == 0) s->kind = (pp_data_kind)i;
  bool synthetic = s->kind == PP_DATA_SYNTHETIC_F32;
  bool ok;
  if (synthetic) {
    ok = source_size(e, call, 0, "the size of a sample", &s->n);
    if (ok && call->v[1].kind != VAL_UNSET) {
      s->kind = PP_DATA_SYNTHETIC_I32;
      ok = source_size(e, call, 1, "the vocabulary", &s->vocabulary);
    }
  } else {
    ok = source_path(e, call, s);
    ok = source_size(e, call, 1, "the size of a sample", &s->n) && ok;
    ok = source_order(e, call, s) && ok;
  }
  return ok ? (Val){.kind = VAL_SOURCE, .source = s} : POISON;
}

static const char *data_override(Eval *e, const char *name) {
  for (int i = 0; i < e->options->n_data; i++)
    if (strcmp(e->options->data[i].name, name) == 0)
      return e->options->data[i].path;
  return NULL;
}

static void override_path(Eval *e, Source *s) {
  const char *path = data_override(e, s->name);
  if (!path) return;
  if (!s->path)
    eval_error(e, s->loc, "--data %s=…: this source has no file", s->name);
  s->path = path;
}

static void declare_source(Eval *e, Source *s) {
  Builder b = {
      .ir = e->ir, .block = ir_body(e->ir), .loc = s->loc, .stage = -1};
  Attr attrs[] = {
      {.name = "sym", .kind = ATTR_KIND_STRING, .s = s->name},
      {.name = "type", .kind = ATTR_KIND_TYPE, .type = s->type},
      {.name = "kind",
       .kind = ATTR_KIND_STRING,
       .s = source_kind_name(s->kind)},
      {.name = "path", .kind = ATTR_KIND_STRING, .s = s->path ? s->path : ""},
      {.name = "order", .kind = ATTR_KIND_STRING, .s = order_name(s->order)},
      {.name = "vocabulary", .kind = ATTR_KIND_INT, .i = s->vocabulary},
  };
  ir_build(&b, OP_SOURCE, 0, NULL, 0, NULL, 6, attrs);
}

static void run_data_entry(Eval *e, const AstTrainEntry *entry, Scope *scope) {
  AstName name = {entry->args.at[0].loc, entry->args.at[0].name};
  const AstExpr *expr = entry->args.at[0].value;
  Val v = train_value(e, expr);
  bool ok;
  int64_t microbatch = setting_value(e, SETTING_MICROBATCH, name.loc, &ok);
  if (v.kind != VAL_SOURCE && v.kind != VAL_POISON) {
    eval_error(e, ast_expr_start(expr),
               "a data source is bytes(…), tokens16(…), f32_file(…), "
               "i32_file(…) or synthetic(…), not %s",
               val_describe(e, v));
    v = POISON;
  }
  if (v.kind == VAL_SOURCE && v.source->name) {
    eval_error(e, ast_expr_start(expr),
               "this source is that of data '%s' already", v.source->name);
    v = POISON;
  }
  int64_t dims[2] = {ok ? microbatch : 1,
                     v.kind == VAL_SOURCE ? v.source->n : 1};
  if (v.kind == VAL_SOURCE && shape_check_size(e, v.source->loc, 2, dims)) {
    bool is_float = v.source->kind == PP_DATA_F32_FILE ||
                    v.source->kind == PP_DATA_SYNTHETIC_F32;
    v.source->name = name.name;
    v.source->type = type_tensor(e->ir, is_float ? PP_F32 : PP_I32, 2, dims);
    override_path(e, v.source);
    VEC_PUSH(e->arena, &e->sources, v.source);
  }
  scope_declare(e, scope, SLOT_MEMBER, name, v);
}

static void report_unknown_data(Eval *e, const char *name) {
  StrGuess guess = str_guess_start(name);
  for (int i = 0; i < e->sources.n; i++) {
    if (strcmp(e->sources.at[i]->name, name) == 0) return;
    str_guess_try(&guess, e->sources.at[i]->name);
  }
  eval_error(e, (Loc){0}, "--data %s=…: 'train' has no data of that name",
             name);
  if (guess.best) eval_note(e, (Loc){0}, "did you mean '%s'?", guess.best);
}

static void run_data(Eval *e, const AstTrain *train, Scope *scope) {
  int errors = diag_error_count(e->diag);
  for (int i = 0; i < train->entries.n && !e->fatal; i++) {
    const AstTrainEntry *entry = &train->entries.at[i];
    if (strcmp(entry->key, "data") != 0 || entry->args.n == 0) continue;
    e->stop = false;
    run_data_entry(e, entry, scope);
  }
  for (int i = 0; i < e->options->n_data && diag_error_count(e->diag) == errors;
       i++)
    report_unknown_data(e, e->options->data[i].name);
}

/* --- vocabularies --- */

/* Follows an index back through ops that only move elements, to the data it
 * comes from. */
static Source *index_source(Eval *e, Value v) {
  for (int hops = 0; hops < 64; hops++) {
    Op op = value_owner(v);
    if (op_is_null(op)) return NULL;
    switch (op_id(op)) {
    case OP_SLICE:
    case OP_RESHAPE:
    case OP_PERMUTE:
    case OP_BROADCAST:
      v = op_operand(op, 0);
      break;
    case OP_DATA: {
      const char *name = op_string(e->arena, op, "source");
      for (int i = 0; i < e->sources.n; i++)
        if (strcmp(e->sources.at[i]->name, name) == 0) return e->sources.at[i];
      return NULL;
    }
    default:
      return NULL;
    }
  }
  return NULL;
}

static void check_vocabulary(Eval *e, const Source *s, int64_t rows,
                             Loc table) {
  if (s->kind == PP_DATA_TOKENS16 && rows > 65536) {
    eval_error(e, s->loc,
               "tokens16 holds ids up to 65535, but the table that they index "
               "has %lld rows",
               (long long)rows);
    eval_note(e, table, "it is indexed here");
  }
  if (s->kind == PP_DATA_SYNTHETIC_I32 && s->vocabulary > rows) {
    eval_error(e, s->loc,
               "synthetic ids go up to %lld, but the table that they index has "
               "%lld rows",
               (long long)s->vocabulary - 1, (long long)rows);
    eval_note(e, table, "it is indexed here");
  }
}

static void find_vocabularies(Eval *e, Op func) {
  OpVec gathers = ir_ops(e->arena, func, OP_GATHER);
  for (int i = 0; i < gathers.n; i++) {
    Op op = gathers.at[i];
    int64_t rows = type_dim(value_type(op_operand(op, 0)), 0);
    Source *s = index_source(e, op_operand(op, 1));
    if (!s) continue;
    check_vocabulary(e, s, rows, op_loc(e->ir, op));
    if (s->kind != PP_DATA_SYNTHETIC_I32 &&
        (s->vocabulary == 0 || rows < s->vocabulary))
      s->vocabulary = rows;
  }
  OpVec sources = ir_ops(e->arena, ir_top(e->ir), OP_SOURCE);
  for (int i = 0; i < sources.n && i < e->sources.n; i++)
    op_set_int(e->ir, sources.at[i], "vocabulary",
               e->sources.at[i]->vocabulary);
}

static void warn_unused_data(Eval *e) {
  for (int i = 0; i < e->sources.n; i++)
    if (!e->sources.at[i]->read)
      diag_warning(e->diag, e->sources.at[i]->loc,
                   "the loss does not use data '%s'", e->sources.at[i]->name);
}

/* --- model, loss, generate --- */

static void run_model(Eval *e, const AstTrain *train, Scope *scope) {
  const AstTrainEntry *entry = ast_train_find(train, "model");
  const AstExpr *expr = entry->args.at[0].value;
  AstName name = {entry->args.at[0].loc, entry->args.at[0].name};
  Val made = POISON;
  Val callee = expr->kind == EXPR_CALL ? train_value(e, expr->call.callee)
                                       : train_value(e, expr);
  bool is_module = callee.kind == VAL_ITEM && callee.item->kind == ITEM_MODULE;
  if (callee.kind != VAL_POISON && (!is_module || expr->kind != EXPR_CALL)) {
    eval_error(e, ast_expr_start(expr),
               is_module
                   ? "write '%s(…)': a model is made by a call of its module"
                   : "a model is made by a call of a module, but this is %s",
               is_module ? callee.item->name : val_describe(e, callee));
  } else if (is_module) {
    Args args;
    if (args_eval(e, expr->call.args, e->train_scope, expr->loc, &args))
      e->model = module_instantiate(e, callee.item, args, "");
    if (!e->fatal) args_release(e, &args);
    if (e->model) made = (Val){.kind = VAL_INSTANCE, .instance = e->model};
  }
  scope_declare(e, scope, SLOT_MEMBER, name, made);
}

static Value loss_scalar(Eval *e, Loc loc, Val v, const char *what) {
  if (v.kind == VAL_POISON) return (Value){0};
  if (v.kind != VAL_TENSOR || type_rank(v.tensor->type) != 0) {
    eval_error(e, loc, "the %s must be a scalar tensor, not %s", what,
               val_describe(e, v));
    if (v.kind == VAL_TENSOR) eval_note(e, loc, "mean(x) makes one");
    return (Value){0};
  }
  return tensor_use(e, loc, v.tensor);
}

/* A count may have any dtype, or be a number: it is summed in f64. */
static Value loss_count(Eval *e, Loc loc, Val v) {
  if (val_is_number(v))
    return tensor_constant(e, loc, v, type_scalar(e->ir, PP_F64));
  Value x = loss_scalar(e, loc, v, "count of the loss");
  Builder *b = value_is_null(x) ? NULL : trace_builder(e, loc);
  return b ? ir_cast(b, x, PP_F64) : (Value){0};
}

static bool build_loss(Eval *e, Loc loc, Val v) {
  bool pair = v.kind == VAL_TUPLE;
  if (v.kind == VAL_POISON) return false;
  if (v.kind == VAL_NONE || (pair && v.list->n != 2)) {
    eval_error(e, loc, "the loss is one scalar or a pair (sum, count), not %s",
               val_describe(e, v));
    return false;
  }
  Val sum = pair ? v.list->at[0] : v;
  Value in[2] = {loss_scalar(e, loc, sum, pair ? "sum of the loss" : "loss")};
  if (value_is_null(in[0])) return false;
  if (!type_is_real(value_type(in[0]))) {
    eval_error(e, loc, "the loss must be a float, not %s",
               dtype_name(type_dtype(value_type(in[0]))));
    return false;
  }
  if (pair) in[1] = loss_count(e, loc, v.list->at[1]);
  Builder *b = pair && value_is_null(in[1]) ? NULL : trace_builder(e, loc);
  if (!b) return false;
  if (pair) op_set_unit(e->ir, ir_top(e->ir), "pp.loss_pair");
  return !op_is_null(ir_build(b, OP_LOSS, pair ? 2 : 1, in, 0, NULL, 0, NULL));
}

static bool trace_loss(Eval *e, const AstTrain *train, Scope *scope,
                       bool keep) {
  const AstExpr *expr = entry_value(train, "loss");
  Loc loc = ast_expr_start(expr);
  Trace *trace = trace_open(e, TRACE_LOSS, "loss", loc);
  e->stage = 0;
  Val v = eval_expr(e, expr, scope);
  bool ok = !e->stop && build_loss(e, expr->loc, v);
  trace_close(e, trace, loc, 0, NULL);
  if (!keep)
    op_erase(trace->func);
  else if (ok)
    find_vocabularies(e, trace->func);
  return ok;
}

/* Erases what a loss that was traced only to learn a length has left beside
 * @loss. */
static void erase_derivatives(Eval *e) {
  OpVec funcs = ir_funcs(e->arena, ir_top(e->ir));
  for (int i = 0; i < funcs.n; i++)
    if (str_starts_with(func_name(e->arena, funcs.at[i]), "derivative."))
      op_erase(funcs.at[i]);
}

/* The function that generates, and the length of its sequences: that of its
 * call in the loss, else one less than the sample of the only source of ints.
 */
static int64_t generate_length(Eval *e, const AstTrain *train, Scope *scope,
                               Val fn) {
  if (fn.kind == VAL_CLOSURE) e->watch.fn = fn.closure;
  if (fn.kind == VAL_INSTANCE) e->watch.fn = fn.instance->call;
  e->watch.length = 0;
  bool ok = trace_loss(e, train, scope, false);
  erase_derivatives(e);
  e->watch.fn = NULL;
  if (!ok || e->watch.length > 0) return e->watch.length;
  int64_t n = 0;
  for (int i = 0; i < e->sources.n; i++)
    if (type_dtype(e->sources.at[i]->type) == PP_I32)
      n = n ? -1 : e->sources.at[i]->n - 1;
  return n;
}

static bool build_logits(Eval *e, Loc loc, Val v, int64_t length) {
  if (v.kind == VAL_POISON) return false;
  Type t = v.kind == VAL_TENSOR ? v.tensor->type : type_scalar(e->ir, PP_F32);
  if (type_rank(t) != 3 || !type_is_real(t) || type_dim(t, 0) != 1 ||
      type_dim(t, 1) != length) {
    eval_error(
        e, loc,
        "'generate' needs logits [1, %lld, vocabulary], but this gives %s",
        (long long)length, val_describe(e, v));
    return false;
  }
  Value x = tensor_use(e, loc, v.tensor);
  Builder *b = value_is_null(x) ? NULL : trace_builder(e, loc);
  if (!b) return false;
  x = ir_cast(b, x, PP_F32);
  Attr attrs[] = {{.name = "output", .kind = ATTR_KIND_STRING, .s = "logits"},
                  {.name = "kind", .kind = ATTR_KIND_STRING, .s = "concat"}};
  op_set_int(e->ir, ir_top(e->ir), "pp.length", length);
  op_set_int(e->ir, ir_top(e->ir), "pp.vocabulary", type_dim(t, 2));
  return !op_is_null(ir_build(b, OP_OUTPUT, 1, &x, 0, NULL, 2, attrs));
}

static bool trace_generate(Eval *e, const AstTrain *train, Scope *scope) {
  const AstExpr *expr = entry_value(train, "generate");
  if (!expr)
    return eval_error(
               e, train->loc,
               "'train' has no 'generate': there is nothing to generate with"),
           false;
  Loc loc = expr->loc;
  Val fn = eval_value(e, expr, scope);
  if (fn.kind == VAL_POISON) return false;
  int64_t length = generate_length(e, train, scope, fn);
  if (length <= 0) {
    if (diag_error_count(e->diag) == 0)
      eval_error(e, loc,
                 "the length to generate is unknown: the loss does not call "
                 "this function");
    return false;
  }
  Trace *trace = trace_open(e, TRACE_GENERATE, "generate", loc);
  e->stage = 0;
  e->occurrences = (Map){0};
  Builder *b = trace_builder(e, loc);
  Type type = type_tensor(e->ir, PP_I32, 2, (int64_t[]){1, length});
  Attr source = {.name = "source", .kind = ATTR_KIND_STRING, .s = "prompt"};
  Op prompt = b ? ir_build(b, OP_DATA, 0, NULL, 1, &type, 1, &source) : (Op){0};
  Val tokens = tensor_wrap(
      e, loc, op_is_null(prompt) ? (Value){0} : op_result(prompt, 0), false);
  Val v = call_with(e, fn, 1, &tokens, loc);
  bool ok = !e->stop && build_logits(e, loc, v, length);
  trace_close(e, trace, loc, 0, NULL);
  return ok;
}

/* Training doesn't call it, but a wrong name is told at once. */
static void check_generate(Eval *e, const AstTrain *train, Scope *scope) {
  const AstExpr *expr = entry_value(train, "generate");
  if (!expr) return;
  Val fn = eval_value(e, expr, scope);
  if (fn.kind == VAL_POISON || fn.kind == VAL_CLOSURE ||
      (fn.kind == VAL_INSTANCE && fn.instance->call))
    return;
  eval_error(e, ast_expr_start(expr),
             "'generate' needs a function from i32[1, length] to logits, not "
             "%s",
             val_describe(e, fn));
}

/* --- schedule and optimizer --- */

static const char *const schedule_presets[] = {"ranks", "stages",
                                               "microbatches"};

/* `name` or `name(args)`, naming an item of this kind; NULL after an error. */
static Bound *bound_item(Eval *e, const AstExpr *expr, AstItemKind kind,
                         const char *what) {
  Val v = train_value(e, expr);
  if (v.kind == VAL_ITEM && v.item->kind == kind)
    v = call_with(e, v, 0, NULL, ast_expr_start(expr));
  if (v.kind == VAL_BOUND && v.bound->item->kind == kind) {
    Presets presets = {3, schedule_presets, NULL};
    const AstItem *item = v.bound->item;
    bool ok = check_args(e, &item->decl.params, v.bound->args,
                         kind == ITEM_SCHEDULE ? &presets : NULL, what,
                         item->name, item->name_loc);
    return ok ? v.bound : NULL;
  }
  if (v.kind != VAL_POISON)
    eval_error(e, ast_expr_start(expr), "'%s' needs %s %s, not %s", what,
               kind == ITEM_OPTIMIZER ? "an" : "a", what, val_describe(e, v));
  return NULL;
}

static void run_stages(Program *p, const AstTrain *train) {
  Eval *e = &p->e;
  const AstExpr *expr = entry_value(train, "stages");
  int64_t n;
  if (!expr || !eval_int(e, expr, e->train_scope, "'stages'", &n) ||
      n == p->n_stages)
    return;
  eval_error(
      e, ast_expr_start(expr),
      "'stages' is %lld, but the loss has %d: one more than its stage_end%s",
      (long long)n, p->n_stages, p->n_stages == 2 ? "" : "s");
  if (e->last_stage_end.line)
    eval_note(e, e->last_stage_end, "the last stage_end is here");
}

/* --- the whole --- */

/* Programs for CPUs say nothing. */
static void set_target(Eval *e, Op top) {
  if (e->options->target != PP_TARGET_CUDA) return;
  int64_t workspace = e->options->products_workspace;
  op_set_string(e->ir, top, "pp.target", "cuda");
  op_set_int(e->ir, top, "pp.products_workspace",
             workspace < 0 ? PP_CUDA_WORKSPACE_BYTES : workspace);
}

static void set_loss_scale(Eval *e, Op top, const LossScale *scale) {
  if (scale->first != 1 || scale->interval) op_set_float(e->ir, top, "pp.loss_scale", scale->first);
  if (!scale->interval) return;
  op_set_float(e->ir, top, "pp.loss_scale_growth", scale->growth);
  op_set_float(e->ir, top, "pp.loss_scale_backoff", scale->backoff);
  op_set_int(e->ir, top, "pp.loss_scale_interval", scale->interval);
}

static void set_attributes(Program *p, int64_t seed, const char *nonfinite, const LossScale *scale) {
  Eval *e = &p->e;
  Op top = ir_top(e->ir);
  bool generate = e->options->generate;
  op_set_string(e->ir, top, "pp.file", e->program->main->path);
  op_set_string(e->ir, top, "pp.dtype", dtype_name(e->real));
  if (e->narrows || e->tf32) op_set_string(e->ir, top, "pp.precision", e->tf32 ? "tf32" : "bf16");
  op_set_int(e->ir, top, "pp.seed", seed);
  op_set_int(e->ir, top, "pp.steps",
             generate ? 1 : e->settings[SETTING_STEPS].value);
  op_set_int(e->ir, top, "pp.microbatch",
             generate ? 1 : e->settings[SETTING_MICROBATCH].value);
  op_set_int(e->ir, top, "pp.microbatches",
             generate ? 1 : e->settings[SETTING_MICROBATCHES].value);
  op_set_int(e->ir, top, "pp.ranks", e->settings[SETTING_RANKS].value);
  op_set_int(e->ir, top, "pp.stages", p->n_stages);
  op_set_string(e->ir, top, "pp.nonfinite", nonfinite);
  if (!generate) set_loss_scale(e, top, scale);
  if (e->schedule || p->csv)
    op_set_string(e->ir, top, "pp.schedule", program_schedule_name(p));
  if (e->states && !generate) op_set_string(e->ir, top, "pp.states", e->states);
  if (generate) op_set_unit(e->ir, top, "pp.generate");
  set_target(e, top);
}

/* The next entry starts afresh after an error in the one before it. */
static bool next_entry(Eval *e) {
  eval_flush_notes(e);
  if (e->fatal) return false;
  e->stop = false;
  e->frames.n = 0, e->depth = 0, e->n_values = 0;
  e->trace = NULL, e->guard = NULL;
  return true;
}

static void run_update(Eval *e, const AstTrain *train) {
  const AstExpr *clip = entry_value(train, "clip");
  if (next_entry(e)) {
    e->optimizer = bound_item(e, entry_value(train, "optimizer"),
                              ITEM_OPTIMIZER, "optimizer");
    if (e->optimizer) optimizer_trace(e);
  }
  if (clip && next_entry(e)) {
    e->clip = train_value(e, clip);
    if (!e->stop) clip_trace(e, ast_expr_start(clip));
  }
}

bool train_run(Program *p) {
  Eval *e = &p->e;
  const AstTrain *train = p->train;
  e->train_scope = scope_push(e, eval_file_scope(e, e->program->main));
  Scope *scope = scope_push(e, e->train_scope);
  scope->open = scope->captured = e->train_scope->open =
      e->train_scope->captured = true;
  run_dtype(e, train);
  if (next_entry(e)) run_precision(e, train);
  bool settings = next_entry(e) && run_settings(e, train);
  if (!next_entry(e)) return false;
  int64_t seed = run_seed(e, train);
  LossScale scale = {.first = 1};
  const char *nonfinite = next_entry(e) ? run_loss_scale(e, train, &scale) : "stop";
  if (next_entry(e)) run_data(e, train, scope);
  if (next_entry(e)) run_model(e, train, scope);
  for (int i = 0; i < e->sources.n && !e->options->generate; i++)
    declare_source(e, e->sources.at[i]);
  bool traced = false;
  if (e->model && settings && next_entry(e))
    traced = e->options->generate ? trace_generate(e, train, scope)
                                  : trace_loss(e, train, scope, true);
  p->n_stages = e->stage + 1;
  if (traced && next_entry(e)) run_stages(p, train);
  if (traced && next_entry(e)) check_generate(e, train, scope);
  if (traced && !e->options->generate) warn_unused_data(e);
  if (!e->options->generate) run_update(e, train);
  if (!p->csv && next_entry(e))
    e->schedule = bound_item(e, p->schedule_expr, ITEM_SCHEDULE, "schedule");
  if (next_entry(e)) set_attributes(p, seed, nonfinite, &scale);
  return traced && !e->fatal;
}

bool train_run_schedule(Program *p) {
  Eval *e = &p->e;
  bool ok = true, one;
  e->train_scope = scope_push(e, eval_file_scope(e, e->program->main));
  e->train_scope->open = e->train_scope->captured = true;
  prepare_setting(e, SETTING_RANKS, NULL, e->options->ranks);
  prepare_setting(e, SETTING_MICROBATCHES, NULL, e->options->microbatches);
  static const SettingId given[] = {SETTING_RANKS, SETTING_MICROBATCHES};
  for (size_t i = 0; i < sizeof given / sizeof *given; i++) {
    declare_setting(e, given[i]);
    setting_value(e, given[i], (Loc){0}, &one);
    ok = ok && one;
  }
  if (next_entry(e))
    e->schedule = bound_item(e, p->schedule_expr, ITEM_SCHEDULE, "schedule");
  return ok && e->schedule && !e->fatal;
}
