/* The table of builtins, how their arguments are bound, and those on lists and
 * numbers.
 *
 * In: a call with evaluated arguments. Out: its value. A builtin that has a
 * NULL function is a value: a dtype, a word, `training`. The names must be
 * those of dsl/resolve.c. */
#include <math.h>
#include <string.h>

#include "compiler/eval.h"

#define LIST_BUILTIN(name)                                                     \
  static Val list_##name(Eval *e, const BuiltinCall *call)
LIST_BUILTIN(len);
LIST_BUILTIN(is_list);
LIST_BUILTIN(append);
LIST_BUILTIN(pop_front);
LIST_BUILTIN(reverse);
LIST_BUILTIN(sort);
LIST_BUILTIN(copy);
LIST_BUILTIN(ascending);
static Val number_round(Eval *e, const BuiltinCall *call);
static Val print_values(Eval *e, const BuiltinCall *call);

const Builtin builtins[] = {
    {"div", 2, 2, 2, {"a", "b"}, builtin_div},
    {"mod", 2, 2, 2, {"a", "b"}, builtin_mod},
    {"min", 2, 2, 2, {"a", "b"}, builtin_min},
    {"max", 1, 2, 4, {"x", "b", "axis", "keep"}, builtin_max},
    {"abs", 1, 1, 1, {"x"}, builtin_abs},
    {"exp", 1, 1, 1, {"x"}, builtin_unary},
    {"log", 1, 1, 1, {"x"}, builtin_unary},
    {"tanh", 1, 1, 1, {"x"}, builtin_unary},
    {"sqrt", 1, 1, 1, {"x"}, builtin_unary},
    {"rsqrt", 1, 1, 1, {"x"}, builtin_unary},
    {"erf", 1, 1, 1, {"x"}, builtin_unary},
    {"sin", 1, 1, 1, {"x"}, builtin_unary},
    {"cos", 1, 1, 1, {"x"}, builtin_unary},
    {"pow", 2, 2, 2, {"x", "y"}, builtin_pow},
    {"floor", 1, 1, 1, {"x"}, number_round},
    {"ceil", 1, 1, 1, {"x"}, number_round},
    {"len", 1, 1, 1, {"l"}, list_len},
    {"is_list", 1, 1, 1, {"x"}, list_is_list},
    {"append", 2, 2, 2, {"l", "x"}, list_append},
    {"pop_front", 1, 1, 1, {"l"}, list_pop_front},
    {"reverse", 1, 1, 1, {"l"}, list_reverse},
    {"sort", 1, 2, 2, {"l", "less"}, list_sort},
    {"copy", 1, 1, 1, {"l"}, list_copy},
    {"ascending", 2, 2, 2, {"a", "b"}, list_ascending},
    {"print", 1, 6, 6, {"a", "b", "c", "d", "e", "f"}, print_values},
    {"sum", 1, 1, 3, {"x", "axis", "keep"}, builtin_reduce},
    {"mean", 1, 1, 3, {"x", "axis", "keep"}, builtin_reduce},
    {"select", 3, 3, 3, {"c", "a", "b"}, builtin_select},
    {"concat", 1, 1, 2, {"l", "axis"}, builtin_concat},
    {"pad", 4, 4, 4, {"x", "axis", "before", "after"}, builtin_pad},
    {"transpose", 1, 1, 1, {"x"}, builtin_transpose},
    {"permute", 2, 2, 2, {"x", "axes"}, builtin_permute},
    {"reshape", 2, 2, 2, {"x", "shape"}, builtin_reshape},
    {"iota", 1, 1, 1, {"n"}, builtin_iota},
    {"random", 1, 1, 1, {"shape"}, builtin_random},
    {"gather", 2, 2, 2, {"table", "i"}, builtin_gather},
    {"cast", 2, 2, 2, {"x", "dtype"}, builtin_cast},
    {"shape", 1, 1, 1, {"x"}, builtin_shape},
    {"dtype", 1, 1, 1, {"x"}, builtin_dtype},
    {"rank", 1, 1, 1, {"x"}, builtin_rank},
    {"name", 1, 1, 1, {"p"}, builtin_name},
    {"attention",
     3,
     3,
     5,
     {"q", "k", "v", "causal", "scale"},
     builtin_attention},
    {"normal", 2, 2, 2, {"mean", "std"}, builtin_init},
    {"uniform", 2, 2, 2, {"a", "b"}, builtin_init},
    {"fwd", 2, 2, 2, {"stage", "microbatch"}, builtin_action},
    {"bwd", 2, 2, 2, {"stage", "microbatch"}, builtin_action},
    {"bwd_input", 2, 2, 2, {"stage", "microbatch"}, builtin_action},
    {"bwd_weight", 2, 2, 2, {"stage", "microbatch"}, builtin_action},
    {"bytes", 2, 2, 3, {"path", "n", "order"}, builtin_source},
    {"tokens16", 2, 2, 3, {"path", "n", "order"}, builtin_source},
    {"f32_file", 2, 2, 3, {"path", "n", "order"}, builtin_source},
    {"i32_file", 2, 2, 3, {"path", "n", "order"}, builtin_source},
    {"synthetic", 1, 2, 2, {"n", "vocab"}, builtin_source},
    {"dynamic",
     0,
     0,
     4,
     {"initial", "interval", "growth", "backoff"},
     builtin_dynamic},
};
const int builtins_count = sizeof builtins / sizeof *builtins;

/* --- names --- */

static Val dtype_value(Eval *e, const char *name, Loc loc) {
  static const char *const unsupported[] = {"f16", "i64"};
  if (strcmp(name, "real") == 0)
    return (Val){.kind = VAL_DTYPE, .dtype = e->real};
  for (int d = 0; d < PP_DTYPE_COUNT; d++)
    if (strcmp(name, dtype_name((pp_dtype)d)) == 0)
      return (Val){.kind = VAL_DTYPE, .dtype = (pp_dtype)d};
  for (size_t i = 0; i < sizeof unsupported / sizeof *unsupported; i++)
    if (strcmp(name, unsupported[i]) == 0)
      return eval_error(
          e, loc, "%s is not supported: the dtypes are f32, f64, bf16, i32 and bool",
          name);
  return (Val){.kind = VAL_UNSET};
}

static const Init zeros_init = {.kind = PP_INIT_ZEROS},
                  ones_init = {.kind = PP_INIT_ONES};

static Val word_value(Eval *e, const char *name) {
  static const char *const words[] = {"all", "sequential", "shuffled", "stop",
                                      "skip", "tf32"};
  if (strcmp(name, "training") == 0) return val_bool(e->training);
  if (strcmp(name, "zeros") == 0)
    return (Val){.kind = VAL_INIT, .init = (Init *)&zeros_init};
  if (strcmp(name, "ones") == 0)
    return (Val){.kind = VAL_INIT, .init = (Init *)&ones_init};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (strcmp(name, words[i]) == 0)
      return (Val){.kind = VAL_WORD, .string = words[i]};
  return (Val){.kind = VAL_UNSET};
}

Val builtin_value(Eval *e, const char *name, Loc loc) {
  for (int i = 0; i < builtins_count; i++)
    if (strcmp(builtins[i].name, name) == 0)
      return (Val){.kind = VAL_BUILTIN, .builtin = &builtins[i]};
  Val v = word_value(e, name);
  return v.kind != VAL_UNSET ? v : dtype_value(e, name, loc);
}

/* --- arguments --- */

static int builtin_param(const Builtin *b, const char *name) {
  for (int i = 0; i < b->max; i++)
    if (strcmp(b->params[i], name) == 0) return i;
  return -1;
}

static void report_builtin_arg(Eval *e, const Builtin *b, Args args, int i,
                               int place) {
  const char *name = args.written ? args.written[i].name : NULL;
  Loc loc = args.written ? args.written[i].loc : args.loc;
  if (place >= 0) {
    eval_error(e, loc, "argument '%s' is given twice", b->params[place]);
  } else if (name) {
    eval_error(e, loc, "'%s' has no argument '%s'", b->name, name);
    StrGuess guess = str_guess_start(name);
    for (int k = 0; k < b->max; k++) str_guess_try(&guess, b->params[k]);
    if (guess.best) eval_note(e, loc, "did you mean '%s'?", guess.best);
  } else {
    eval_error(e, loc, "'%s' takes %d argument%s by place, here are %d",
               b->name, b->positional, b->positional == 1 ? "" : "s", args.n);
    if (b->max > b->positional)
      eval_note(e, loc, "the others go by name: %s(…, %s = …)", b->name,
                b->params[b->positional]);
  }
}

static bool bind_builtin(Eval *e, const Builtin *b, Args args,
                         BuiltinCall *call) {
  for (int i = 0; i < BUILTIN_MAX_ARGS; i++)
    call->v[i].kind = VAL_UNSET, call->at[i] = args.loc;
  for (int i = 0; i < args.n; i++) {
    const char *name = args.written ? args.written[i].name : NULL;
    int place = name ? builtin_param(b, name) : i < b->positional ? i : -1;
    if (place < 0 || call->v[place].kind != VAL_UNSET)
      return report_builtin_arg(e, b, args, i, place), false;
    call->v[place] = args.values[i];
    if (args.written)
      call->at[place] =
          name ? args.written[i].loc : ast_expr_start(args.written[i].value);
  }
  for (int i = 0; i < b->min; i++)
    if (call->v[i].kind == VAL_UNSET)
      return eval_error(e, args.loc, "'%s' needs argument '%s'", b->name,
                        b->params[i]),
             false;
  return true;
}

const char *builtin_name_of(const BuiltinCall *call) {
  return call->builtin->name;
}

Val builtin_call(Eval *e, const Builtin *b, Args args) {
  BuiltinCall call = {.loc = args.loc, .builtin = b};
  return bind_builtin(e, b, args, &call) ? b->run(e, &call) : POISON;
}

bool builtin_int(Eval *e, const BuiltinCall *call, int i, const char *what,
                 int64_t *out) {
  if (call->v[i].kind == VAL_INT) return *out = call->v[i].int_value, true;
  if (call->v[i].kind != VAL_POISON)
    eval_error(e, call->at[i], "'%s' needs an int for %s, not %s",
               builtin_name_of(call), what, val_describe(e, call->v[i]));
  return false;
}

bool builtin_bool(Eval *e, const BuiltinCall *call, int i, bool otherwise,
                  bool *out) {
  *out = otherwise;
  if (call->v[i].kind == VAL_UNSET) return true;
  if (call->v[i].kind == VAL_BOOL) return *out = call->v[i].bool_value, true;
  if (call->v[i].kind != VAL_POISON)
    eval_error(e, call->at[i], "'%s' is true or false, not %s",
               call->builtin->params[i], val_describe(e, call->v[i]));
  return false;
}

/* --- lists --- */

static List *want_list(Eval *e, const BuiltinCall *call, bool change) {
  Val v = call->v[0];
  if (v.kind == VAL_LIST && !(change && v.list->frozen)) return v.list;
  if (v.kind == VAL_LIST)
    eval_error(e, call->at[0], "an array of modules can't be changed");
  else if (v.kind != VAL_POISON)
    eval_error(e, call->at[0], "'%s' works on lists, not on %s",
               builtin_name_of(call), val_describe(e, v));
  return NULL;
}

LIST_BUILTIN(len) {
  if (call->v[0].kind == VAL_STRING)
    return val_int((int64_t)strlen(call->v[0].string));
  List *l = want_list(e, call, false);
  return l ? val_int(l->n) : POISON;
}

LIST_BUILTIN(is_list) {
  (void)e;
  if (call->v[0].kind == VAL_POISON) return POISON;
  return val_bool(call->v[0].kind == VAL_LIST);
}

LIST_BUILTIN(append) {
  List *l = want_list(e, call, true);
  if (l) list_push(e, l, call->v[1]);
  return NONE;
}

LIST_BUILTIN(pop_front) {
  List *l = want_list(e, call, true);
  if (!l) return POISON;
  if (l->n == 0)
    return eval_error(e, call->at[0], "'pop_front' of an empty list");
  l->n--;
  return l->at[l->head++];
}

static Val copy_list(Eval *e, const List *l) {
  Val v = list_new(e, l->n);
  if (v.list->cap < l->n) return POISON;
  if (l->n > 0)
    memcpy(v.list->at, l->at + l->head, (size_t)l->n * sizeof *l->at);
  v.list->n = l->n;
  e->steps += l->n;
  return v;
}

LIST_BUILTIN(copy) {
  List *l = want_list(e, call, false);
  return l ? copy_list(e, l) : POISON;
}

LIST_BUILTIN(reverse) {
  List *l = want_list(e, call, false);
  Val v = l ? copy_list(e, l) : POISON;
  if (v.kind != VAL_LIST) return v;
  for (int64_t i = 0, k = v.list->n - 1; i < k; i++, k--) {
    Val t = v.list->at[i];
    v.list->at[i] = v.list->at[k];
    v.list->at[k] = t;
  }
  return v;
}

LIST_BUILTIN(ascending) {
  return eval_binary(e, call->loc, AST_LT, call->v[0], call->v[1]);
}

/* Is b before a? A merge keeps a in front otherwise, so that the sort is
 * stable. */
static bool comes_before(Eval *e, const BuiltinCall *call, Val b, Val a) {
  if (call->v[1].kind == VAL_UNSET && a.kind == VAL_INT && b.kind == VAL_INT)
    return b.int_value < a.int_value;
  Val r = call->v[1].kind == VAL_UNSET
              ? eval_binary(e, call->loc, AST_LT, b, a)
              : call_with(e, call->v[1], 2, (Val[]){b, a}, call->at[1]);
  if (r.kind == VAL_BOOL) return r.bool_value;
  if (r.kind != VAL_POISON)
    eval_error(e, call->at[1], "'less' must give a bool, not %s",
               val_describe(e, r));
  eval_stop(e);
  return false;
}

static void merge(Eval *e, const BuiltinCall *call, const Val *in, Val *out,
                  int64_t a, int64_t mid, int64_t b) {
  int64_t i = a, k = mid;
  for (int64_t at = a; at < b; at++) {
    bool right = k < b && (i >= mid ||
                           (!e->stop && comes_before(e, call, in[k], in[i])));
    out[at] = right ? in[k++] : in[i++];
  }
  e->steps += b - a;
}

LIST_BUILTIN(sort) {
  List *l = want_list(e, call, false);
  Val v = l ? copy_list(e, l) : POISON;
  if (v.kind != VAL_LIST || v.list->n < 2) return v;
  int64_t n = v.list->n;
  Val *from = v.list->at, *to = eval_alloc(e, (size_t)n * sizeof *to);
  for (int64_t width = 1; width < n && !e->stop; width *= 2) {
    for (int64_t a = 0; a < n && !e->stop; a += 2 * width) {
      int64_t mid = a + width < n ? a + width : n,
              b = mid + width < n ? mid + width : n;
      merge(e, call, from, to, a, mid, b);
    }
    Val *t = from;
    from = to;
    to = t;
  }
  if (e->stop) return POISON;
  v.list->at = from;
  return v;
}

/* --- numbers --- */

static Val number_round(Eval *e, const BuiltinCall *call) {
  Val x = call->v[0];
  if (x.kind == VAL_INT || x.kind == VAL_POISON) return x;
  if (x.kind != VAL_FLOAT)
    return eval_error(e, call->at[0], "'%s' works on numbers, not on %s",
                      builtin_name_of(call), val_describe(e, x));
  double v = strcmp(builtin_name_of(call), "floor") == 0 ? floor(x.float_value)
                                                         : ceil(x.float_value);
  if (!(fabs(v) < 9.2e18))
    return eval_error(e, call->at[0], "this number does not fit in an int");
  return val_int((int64_t)v);
}

enum { MAX_PRINTS = 1000 };

/* For the author of a program: a warning with the values. */
static Val print_values(Eval *e, const BuiltinCall *call) {
  Str text = {0};
  for (int i = 0; i < BUILTIN_MAX_ARGS && call->v[i].kind != VAL_UNSET; i++) {
    if (i > 0) str_putc(&text, ' ');
    val_print(&text, call->v[i], 0);
  }
  eval_flush_notes(e);
  if (e->n_prints++ < MAX_PRINTS)
    diag_warning(e->diag, call->loc, "print: %s", str_text(&text));
  str_free(&text);
  return NONE;
}
