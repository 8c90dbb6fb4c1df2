/* In: a module, a stage's module or a function. Out: text for people: one line an op, values under
 * their names in the source, short types, the place in the source behind each line:
 *
 *   qkv = matmul(x_2, h.0.attn.c_attn.weight)      f32[512, 384]     # nn.pp:41
 *
 * Parameters, data and constants stand where they are used and get no line. It doesn't parse back:
 * ir_print's text does. */
#include "compiler/ir/pretty.h"

#include <string.h>

#include "compiler/ir/internal.h"

/* --- one function --------------------------------------------------------------------------------- */

typedef struct {
  const Pretty *p;
  PtrMap names;  /* Value.ptr → text */
  Map counts;    /* base name → how many times it was given */
  PrettyRows rows;
  bool by_stage; /* the ops have stages of their own: rules between them */
  int stage;
  bool backward;
} Printer;

static void set_name(Printer *w, Value v, const char *text) {
  ptrmap_put(w->p->tmp, &w->names, v.ptr, (void *)(uintptr_t)text);
}

/* "x", then "x_2", "x_3": a name is given once. `numbered`: from "x_1" on. */
static const char *fresh_name(Printer *w, const char *base, bool numbered) {
  for (;;) {
    intptr_t n = (intptr_t)map_get(&w->counts, base) + 1;
    map_put(w->p->tmp, &w->counts, base, (void *)n);
    if (n == 1 && !numbered) return base;
    const char *name = arena_printf(w->p->tmp, "%s_%d", base, (int)n);
    if (map_find(&w->counts, name)) continue; /* the source says it that way */
    map_put(w->p->tmp, &w->counts, name, (void *)1);
    return name;
  }
}

static const char *name_of(Printer *w, Value v) {
  const char *known = ptrmap_get(&w->names, v.ptr);
  return known ? known : "?";
}

static const char *operand(Printer *w, Op op, int i) { return name_of(w, op_operand(op, i)); }

static const char *list_operands(Printer *w, Op op, int from) {
  Str s = {0};
  for (int i = from; i < op_n_operands(op); i++) str_printf(&s, "%s%s", i > from ? ", " : "", operand(w, op, i));
  const char *text = arena_strdup(w->p->tmp, str_text(&s));
  str_free(&s);
  return text;
}

static const char *list_ints(Printer *w, Op op, const char *attr) {
  int64_t n;
  const int64_t *v = op_ints(w->p->tmp, op, attr, &n);
  Str s = {0};
  for (int64_t i = 0; i < n; i++) str_printf(&s, "%s%lld", i ? ", " : "", (long long)v[i]);
  const char *text = arena_strdup(w->p->tmp, str_text(&s));
  str_free(&s);
  return text;
}

static const char *string(Printer *w, Op op, const char *attr) {
  const char *s = op_string(w->p->tmp, op, attr);
  return s ? s : "";
}

/* --- values that get no line ------------------------------------------------------------------------- */

static const char *constant_text(Printer *w, Op op) {
  Type t = value_type(op_result(op, 0));
  if (type_dtype(t) == PP_BOOL) return op_int(op, "value", 0) ? "true" : "false";
  if (!op_constant_is_float(op)) return arena_printf(w->p->tmp, "%lld", (long long)op_int(op, "value", 0));
  return pretty_number(w->p, op_float(op, "value", 0), type_dtype(t) == PP_F32);
}

/* True when the op is named by what it is. */
static bool name_leaf(Printer *w, Op op, OpId id) {
  const char *text = NULL;
  if (id == OP_CONSTANT) text = constant_text(w, op);
  if (id == OP_PARAM) text = string(w, op, "param");
  if (id == OP_DATA) text = string(w, op, "source");
  if (id == OP_STEP) text = "step";
  if (id == OP_LOSS_SCALE) text = "loss_scale";
  if (text) set_name(w, op_result(op, 0), text);
  return text != NULL;
}

/* --- expressions ----------------------------------------------------------------------------------------- */

static const char *infix_of(Printer *w, Op op, OpId id) {
  static const struct {
    const char *predicate, *sign;
  } signs[] = {{"eq", "=="}, {"ne", "!="}, {"lt", "<"}, {"le", "<="}, {"gt", ">"}, {"ge", ">="}};
  switch (id) {
    case OP_ADD: return "+";
    case OP_SUB: return "-";
    case OP_MUL: return "*";
    case OP_DIV: return "/";
    case OP_AND: return "and";
    case OP_OR: return "or";
    case OP_COMPARE:
      for (size_t i = 0; i < sizeof signs / sizeof *signs; i++)
        if (!strcmp(signs[i].predicate, string(w, op, "predicate"))) return signs[i].sign;
      return "?";
    default: return NULL;
  }
}

static const char *slice_text(Printer *w, Op op) {
  int64_t n;
  const int64_t *starts = op_ints(w->p->tmp, op, "starts", &n), *limits = op_ints(w->p->tmp, op, "limits", &n);
  Type x = value_type(op_operand(op, 0));
  Str s = {0};
  str_printf(&s, "%s[", operand(w, op, 0));
  for (int i = 0; i < n; i++) {
    if (i) str_puts(&s, ", ");
    if (starts[i] == 0 && limits[i] == type_dim(x, i))
      str_puts(&s, "..");
    else
      str_printf(&s, "%lld..%lld", (long long)starts[i], (long long)limits[i]);
  }
  str_putc(&s, ']');
  const char *text = arena_strdup(w->p->tmp, str_text(&s));
  str_free(&s);
  return text;
}

static const char *product_text(Printer *w, Op op) {
  const char *text = arena_printf(w->p->tmp, "matmul(%s%s, %s%s)", operand(w, op, 0), op_unit(op, "ta") ? "ᵀ" : "", operand(w, op, 1),
                                  op_unit(op, "tb") ? "ᵀ" : "");
  const char *epilogue = string(w, op, "epilogue");
  if (!*epilogue) return text;
  return arena_printf(w->p->tmp, "%s(%s + %s)", strcmp(epilogue, "bias") ? epilogue : "", text, operand(w, op, 2));
}

static const char *attention_text(Printer *w, Op op, OpId id) {
  return arena_printf(w->p->tmp, "%s(%s, %sscale = %s)", op_name(id), list_operands(w, op, 0),
                      op_unit(op, "causal") ? "causal, " : "", pretty_number(w->p, op_float(op, "scale", 1), true));
}

static const char *derivative_text(Printer *w, Op op) {
  return arena_printf(w->p->tmp, "with_derivative(%s)  by %s", list_operands(w, op, 0), string(w, op, "derivative"));
}

static const char *expression(Printer *w, Op op, OpId id) {
  Arena *a = w->p->tmp;
  const char *sign = infix_of(w, op, id);
  if (sign) return arena_printf(a, "%s %s %s", operand(w, op, 0), sign, operand(w, op, 1));
  const char *all = list_operands(w, op, 0);
  switch (id) {
    case OP_NEG: return arena_printf(a, "-%s", all);
    case OP_NOT: return arena_printf(a, "not %s", all);
    case OP_CAST: return arena_printf(a, "%s(%s)", dtype_name(type_dtype(value_type(op_result(op, 0)))), all);
    case OP_SLICE: return slice_text(w, op);
    case OP_REDUCE_SUM: return arena_printf(a, "sum(%s, axes = [%s])", all, list_ints(w, op, "axes"));
    case OP_REDUCE_MAX: return arena_printf(a, "max(%s, axes = [%s])", all, list_ints(w, op, "axes"));
    case OP_PERMUTE: return arena_printf(a, "permute(%s, [%s])", all, list_ints(w, op, "axes"));
    case OP_CONCAT: return arena_printf(a, "concat(%s, axis = %d)", all, (int)op_int(op, "axis", 0));
    case OP_PAD:
      return arena_printf(a, "pad(%s, before = [%s], after = [%s])", all, list_ints(w, op, "before"), list_ints(w, op, "after"));
    case OP_IOTA: return arena_printf(a, "iota(axis = %d)", (int)op_int(op, "axis", 0));
    case OP_RANDOM: return arena_printf(a, "random(key = %016llx)", (unsigned long long)op_int(op, "key", 0));
    case OP_MATMUL: return product_text(w, op);
    case OP_SCATTER_ADD: return arena_printf(a, "scatter_add(%s, rows = %lld)", all, (long long)op_int(op, "rows", 0));
    case OP_ATTENTION:
    case OP_ATTENTION_GRAD: return attention_text(w, op, id);
    case OP_GRADIENT: {
      int64_t of = op_int(op, "of_stage", -1);
      const char *of_stage = of < 0 ? "" : arena_printf(a, " of stage %lld", (long long)of);
      return arena_printf(a, "gradient(%s)%s", string(w, op, "param"), of_stage);
    }
    case OP_STATE: return arena_printf(a, "%s(%s)", string(w, op, "state"), string(w, op, "param"));
    case OP_OUTPUTS: return arena_printf(a, "outputs(%s)", string(w, op, "output"));
    case OP_WITH_DERIVATIVE: return derivative_text(w, op);
    case OP_CALL: return arena_printf(a, "%s(%s)", string(w, op, "callee"), all);
    default: return arena_printf(a, "%s(%s)", op_name(id), all);
  }
}

/* What an op without results does. */
static const char *statement(Printer *w, Op op, OpId id) {
  Arena *a = w->p->tmp;
  const char *param = string(w, op, "param"), *all = list_operands(w, op, 0);
  switch (id) {
    case OP_MATMUL_ACCUMULATE: return arena_printf(a, "gradient(%s) += %s", param, product_text(w, op));
    case OP_ACCUMULATE: return arena_printf(a, "gradient(%s) += %s", param, all);
    case OP_SCATTER_ACCUMULATE:
      return arena_printf(a, "gradient(%s)[%s] += %s", param, operand(w, op, 1), operand(w, op, 0));
    case OP_FOLD: return arena_printf(a, "gradient(%s) := %s", param, all);
    case OP_ASSIGN: {
      const char *state = op_string(a, op, "state");
      return state ? arena_printf(a, "%s(%s) := %s", state, param, all) : arena_printf(a, "%s := %s", param, all);
    }
    case OP_OUTPUT: return arena_printf(a, "output %s = %s of %s", string(w, op, "output"), string(w, op, "kind"), all);
    case OP_CONTROL: return arena_printf(a, "control := %s", all);
    case OP_RESCALE: return arena_printf(a, "loss_scale := %s", all);
    case OP_LOOP:
      return arena_printf(a, "for each of %lld microbatches: %s", (long long)op_int(op, "count", 0), string(w, op, "body"));
    default: return expression(w, op, id);
  }
}

/* --- lines ------------------------------------------------------------------------------------------------- */

static const char *base_name(Printer *w, Op op, OpId id) {
  const char *own = op_string(w->p->tmp, op, "pp.name");
  if (own) return own;
  if (id == OP_REDUCE_SUM) return "sum";
  if (id == OP_REDUCE_MAX) return "max";
  if (id == OP_CALL && str_starts_with(string(w, op, "callee"), "kernel_"))
    return string(w, op, "callee") + strlen("kernel_");
  return op_name(id);
}

/* The names of results: one op may have several, "out, lse". */
static const char *results_text(Printer *w, Op op, OpId id) {
  static const char *const attention[] = {"out", "lse"}, *const grads[] = {"dq", "dk", "dv"};
  Str s = {0};
  int n = op_n_results(op);
  bool named = op_string(w->p->tmp, op, "pp.name") != NULL;
  for (int i = 0; i < n; i++) {
    const char *base = base_name(w, op, id);
    if (id == OP_ATTENTION && i > 0) base = attention[i];
    if (id == OP_ATTENTION_GRAD) base = grads[i];
    const char *name = fresh_name(w, base, !named && id != OP_ATTENTION_GRAD && i == 0);
    set_name(w, op_result(op, i), name);
    str_printf(&s, "%s%s", i ? ", " : "", name);
  }
  const char *text = arena_strdup(w->p->tmp, str_text(&s));
  str_free(&s);
  return text;
}

static const char *types_text(Printer *w, Op op) {
  Str s = {0};
  for (int i = 0; i < op_n_results(op); i++)
    str_printf(&s, "%s%s", i ? ", " : "", type_text(w->p->tmp, value_type(op_result(op, i))));
  const char *text = arena_strdup(w->p->tmp, str_text(&s));
  str_free(&s);
  return text;
}

static const char *comment(Printer *w, Loc loc) {
  const char *place = pretty_place(w->p, loc);
  return *place ? arena_printf(w->p->tmp, "# %s", place) : "";
}

static void add_row(Printer *w, const char *text, const char *type, Loc loc) {
  VEC_PUSH(w->p->tmp, &w->rows, (PrettyRow){.cells = {text, type, comment(w, loc)}});
}

static void add_rule(Printer *w, Op op) {
  int stage = op_stage(op);
  bool backward = op_unit(op, "pp.backward");
  if (!w->by_stage || stage < 0 || (stage == w->stage && backward == w->backward)) return;
  w->stage = stage;
  w->backward = backward;
  const char *rule = arena_printf(w->p->tmp, "-- stage %d%s", stage, backward ? ", backward" : "");
  VEC_PUSH(w->p->tmp, &w->rows, (PrettyRow){.cells = {rule}, .whole = true});
}

/* Names every value, also of ops that the filter leaves out. */
static void print_op(Printer *w, Op op) {
  OpId id = op_id(op);
  Loc loc = op_loc(w->p->ir, op);
  if (op_is_return(op)) {
    if (op_n_operands(op)) add_row(w, arena_printf(w->p->tmp, "return %s", list_operands(w, op, 0)), "", loc);
    return;
  }
  if (id == OP_NONE || name_leaf(w, op, id)) return;
  bool wanted = !w->by_stage || op_stage(op) < 0 || pretty_wants_stage(w->p, op_stage(op));
  const char *text = op_n_results(op) ? expression(w, op, id) : statement(w, op, id), *types = types_text(w, op);
  if (op_n_results(op)) text = arena_printf(w->p->tmp, "%s = %s", results_text(w, op, id), text);
  if (!wanted) return;
  add_rule(w, op);
  add_row(w, text, types, loc);
}

/* --- functions ----------------------------------------------------------------------------------------------- */

static const char *task_name(int64_t kind) {
  static const char *const names[PP_TASK_KIND_COUNT] = {
      [PP_FWD] = "forward", [PP_BWD] = "backward", [PP_BWD_INPUT] = "backward to its inputs",
      [PP_BWD_WEIGHT] = "backward to its weights", [PP_FINISH] = "finish: gradients folded, norms",
      [PP_DECIDE] = "decide: loss, norm, factor", [PP_UPDATE] = "update", [PP_REFRESH] = "refresh: tied parameters arrive",
      [PP_PREPARE] = "prepare: what follows from parameters"};
  return kind >= 0 && kind < PP_TASK_KIND_COUNT ? names[kind] : "?";
}

static const char *function_title(const Pretty *p, Op func, int stage) {
  const char *name = func_name(p->tmp, func);
  int64_t kind = op_int(func, "pp.kind", -1);
  if (stage >= 0 && kind >= 0) return arena_printf(p->tmp, "stage %d, %s", stage, task_name(kind));
  if (op_unit(func, "pp.kernel")) return arena_printf(p->tmp, "kernel %s", name + (str_starts_with(name, "kernel_") ? 7 : 0));
  if (!strcmp(name, "loss")) return "loss: the forward pass of a microbatch";
  if (!strcmp(name, "microbatch")) return "microbatch: forward and backward pass";
  if (!strcmp(name, "step")) return "step: all microbatches, then the update";
  if (!strcmp(name, "generate")) return "generate: the forward pass of a prompt";
  if (!strcmp(name, "rate")) return "rate: the learning rate of a step";
  if (!strcmp(name, "clip")) return "clip: the factor of all gradients for a norm";
  if (str_starts_with(name, "update.")) return arena_printf(p->tmp, "update of %s", name + strlen("update."));
  return name;
}

/* Name number i of a list "m,v". */
static const char *list_item(const Pretty *p, const char *list, int i) {
  for (; list && i > 0; i--) list = strchr(list, ',') ? strchr(list, ',') + 1 : NULL;
  return list && *list ? arena_strndup(p->tmp, list, strcspn(list, ",")) : NULL;
}

/* p, g, the optimizer's states, step */
static const char *update_argument(Printer *w, int i, int n) {
  if (i < 2) return i ? "g" : "p";
  const char *states = op_string(w->p->tmp, ir_top(w->p->ir), "pp.states");
  const char *state = i < n - 1 ? list_item(w->p, states, i - 2) : "step";
  return state ? state : arena_printf(w->p->tmp, "in%d", i);
}

/* Arguments of a task bear the names of the values; those of an update function are known. */
static const char *argument_name(Printer *w, Op func, int i, const int64_t *ids, int64_t n_ids) {
  const Pretty *p = w->p;
  const char *name = func_name(p->tmp, func);
  if (i < n_ids) return fresh_name(w, pretty_value(p, ids[i]), false);
  if (!strcmp(name, "clip")) return "norm";
  if (!strcmp(name, "rate")) return "step";
  if (str_starts_with(name, "update.")) return update_argument(w, i, func_n_args(func));
  return arena_printf(p->tmp, "in%d", i);
}

static bool is_task(Op func) { return op_int(func, "pp.kind", -1) >= 0; }

static void name_arguments(Printer *w, Op func) {
  int64_t n;
  const int64_t *in = op_ints(w->p->tmp, func, "pp.in", &n);
  for (int i = 0; i < func_n_args(func); i++) set_name(w, func_arg(func, i), argument_name(w, func, i, in, n));
}

/* "value 7, from stage 0 fwd" */
static const char *journey(const Pretty *p, int64_t id, const char *word, const char *const *ends) {
  if (id < 0 || id >= p->n_value_names) return "";
  const char *end = ends[id] ? arena_printf(p->tmp, ", %s %s", word, ends[id]) : "";
  return arena_printf(p->tmp, "value %lld%s", (long long)id, end);
}

static void add_interface(PrettyRows *rows, Printer *w, const char *head, Value v, const char *about) {
  const char *type = type_text(w->p->tmp, value_type(v));
  VEC_PUSH(w->p->tmp, rows, (PrettyRow){.cells = {head, name_of(w, v), type, about}});
}

/* Rows "in:  x  f32[4, 8]  value 3, from stage 0 fwd"; what a task gives goes by its name in the body. */
static void print_interface(Printer *w, Op func) {
  const Pretty *p = w->p;
  int64_t n_in, n_out;
  const int64_t *in = op_ints(p->tmp, func, "pp.in", &n_in), *out = op_ints(p->tmp, func, "pp.out", &n_out);
  PrettyRows rows = {0};
  for (int i = 0; i < func_n_args(func); i++)
    add_interface(&rows, w, "in:", func_arg(func, i), i < n_in ? journey(p, in[i], "from", p->makers) : "");
  Op ret = func_return_op(func);
  for (int i = 0; i < n_out; i++)
    add_interface(&rows, w, "out:", op_operand(ret, i), journey(p, out[i], "to", p->users));
  pretty_print_rows(p, &rows, "  ", 8, 40);
}

/* Lines of text as comments. */
static void print_about(const Pretty *p, const char *text) {
  for (; text && *text; text += strcspn(text, "\n"), text += *text == '\n')
    fprintf(p->out, "  # %.*s\n", (int)strcspn(text, "\n"), text);
}

static void print_function(const Pretty *p, Op func, int stage) {
  Printer w = {.p = p, .by_stage = stage < 0 && !op_unit(func, "pp.kernel"), .stage = -1};
  const char *title = function_title(p, func, stage), *place = pretty_place(p, op_loc(p->ir, func));
  fprintf(p->out, "\n%s%*s%s%s\n", title, *place ? (int)(strlen(title) < 60 ? 60 - strlen(title) : 2) : 0, "", *place ? "# " : "", place);
  print_about(p, op_string(p->tmp, func, "pp.comment"));
  OpVec ops = block_ops(p->tmp, func_body(func));
  name_arguments(&w, func);
  for (int i = 0; i < ops.n; i++)
    if (!op_is_return(ops.at[i]) || !is_task(func)) print_op(&w, ops.at[i]);
  print_interface(&w, func);
  pretty_print_rows(p, &w.rows, "  ", 64, 24);
}

/* --- modules -------------------------------------------------------------------------------------------------- */

static void print_stage(const Pretty *p, Op module) {
  int stage = op_stage(module);
  if (!pretty_wants_stage(p, stage)) return;
  OpVec funcs = ir_funcs(p->tmp, module);
  for (int i = 0; i < funcs.n; i++) print_function(p, funcs.at[i], stage);
}

static bool is_module(Op op) {
  return mlirStringRefEqual(mlirIdentifierStr(mlirOperationGetName(op)), ref("builtin.module"));
}

/* The kernels that the wanted stages call. */
static Map wanted_kernels(const Pretty *p, const OpVec *ops) {
  Map wanted = {0};
  for (int i = 0; i < ops->n; i++) {
    if (!is_module(ops->at[i]) || !pretty_wants_stage(p, op_stage(ops->at[i]))) continue;
    OpVec calls = ir_ops(p->tmp, ops->at[i], OP_CALL);
    for (int k = 0; k < calls.n; k++) map_put(p->tmp, &wanted, call_callee(p->tmp, calls.at[k]), calls.at[k].ptr);
  }
  return wanted;
}

static void print_top(const Pretty *p, Op top) {
  OpVec ops = block_ops(p->tmp, module_body(top));
  Map kernels = wanted_kernels(p, &ops);
  pretty_header(p, top);
  pretty_parameters(p, top);
  pretty_sources(p, top);
  for (int i = 0; i < ops.n; i++)
    if (op_is_func(ops.at[i]) && !op_unit(ops.at[i], "pp.kernel")) print_function(p, ops.at[i], -1);
  for (int i = 0; i < ops.n; i++)
    if (is_module(ops.at[i])) print_stage(p, ops.at[i]);
  for (int i = 0; i < ops.n; i++)
    if (op_is_func(ops.at[i]) && op_unit(ops.at[i], "pp.kernel") && map_find(&kernels, func_name(p->tmp, ops.at[i])))
      print_function(p, ops.at[i], -1);
  pretty_ranks(p, top);
  pretty_transfers(p, top);
}

void ir_print_pretty(FILE *out, Ir *ir, Op op, PrettyOptions options) {
  Pretty p = {.ir = ir, .out = out, .tmp = arena_create(), .options = options};
  pretty_read_values(&p, ir_top(ir));
  if (op_is_func(op))
    print_function(&p, op, is_module(op_parent(op)) ? op_stage(op_parent(op)) : -1);
  else if (op.ptr == ir_top(ir).ptr)
    print_top(&p, op);
  else
    print_stage(&p, op);
  arena_destroy(p.tmp);
}
