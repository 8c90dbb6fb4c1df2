/* The compile-time evaluator, internal to
 * compiler/{value,eval,call,shapes,builtins,tensors,
 * tensor_builtins,modules,derivative,optimizer,train,elaborate,run_schedule}.c.
 *
 * A tree walker over the AST. Values are 16 bytes; what they point to lies in
 * the Ir's arena. Scopes are reused when no closure holds them. An operation on
 * a tensor adds an op to the function being traced.
 *
 * Errors: eval_error reports (once per place, with the chain of calls) and
 * gives VAL_POISON. Poison flows silently through expressions; where a decision
 * depends on it, `stop` unwinds to the entry of `train`. `fatal` (budget,
 * memory, too many errors) ends the whole run. */
#ifndef PPC_EVAL_H
#define PPC_EVAL_H

#include "compiler/compiler.h"
#include "dsl/ast.h"
#include "dsl/load.h"

typedef struct Eval Eval;
typedef struct Scope Scope;
typedef struct Instance Instance;
typedef struct Trace Trace;
typedef struct Builtin Builtin;
typedef struct List List;
typedef struct Param Param;

/* --- values --- */

typedef enum {
  VAL_POISON, /* after an error that was reported */
  VAL_UNSET,  /* a slot that has no value yet: invisible */
  VAL_NONE,   /* the result of a function without `return x` */
  VAL_INT,
  VAL_FLOAT,
  VAL_BOOL,
  VAL_STRING,
  VAL_WORD, /* all, sequential, stop …: `string` */
  VAL_DTYPE,
  VAL_LIST,
  VAL_TUPLE, /* several results: `list` */
  VAL_CLOSURE,
  VAL_CONSTANT_FN, /* a number where a rate is wanted: `float_value` */
  VAL_BUILTIN,
  VAL_ITEM,  /* a module, schedule or optimizer */
  VAL_BOUND, /* a schedule or optimizer with its arguments */
  VAL_INSTANCE,
  VAL_PARAM,   /* only in slots: a name that means one reads it */
  VAL_SOURCE,  /* a data source; in a slot of `train` it is read like a param */
  VAL_SETTING, /* only in slots: steps, ranks … of `train` */
  VAL_INIT,
  VAL_LOSS_SCALE, /* a dynamic one */
  VAL_TENSOR,
} ValKind;

/* A node of the graph. */
typedef struct {
  Value v;
  Type type;
  Trace *trace;      /* the function it was traced in */
  int64_t serial;    /* ascending in the order of creation */
  const char *param; /* an optimizer's `p`: name of the parameter; else NULL */
  bool number; /* made from step or norm: an f64 scalar that takes the dtype of
                  what it meets */
  bool named;  /* pp.name is set */
} Tensor;

typedef struct {
  const AstFn *fn;
  Scope *env;
  Instance *instance; /* of the module it stands in, or NULL */
} Closure;

typedef struct {
  pp_init_kind kind;
  double a, b;
} Init;

/* How the loss is scaled before it is differentiated. */
typedef struct {
  double first;
  int64_t interval; /* 0: it never changes */
  double growth, backoff;
} LossScale;

typedef struct {
  pp_data_kind kind;
  pp_data_order order;
  const char *name; /* of the `data` line */
  const char *path; /* NULL: none */
  int64_t n, vocabulary;
  Loc loc;
  Type type;    /* of one microbatch */
  Tensor *read; /* its pp.data, once read */
} Source;

typedef struct Val {
  ValKind kind;
  union {
    int64_t int_value;
    double float_value;
    bool bool_value;
    const char *string;
    pp_dtype dtype;
    int setting;
    List *list;
    Closure *closure;
    const Builtin *builtin;
    const AstItem *item;
    struct Bound *bound;
    Instance *instance;
    Param *param;
    Source *source;
    Init *init;
    LossScale *loss_scale;
    Tensor *tensor;
  };
} Val;

struct List {
  Val *at;
  int64_t n, cap;
  int64_t head; /* elements that pop_front took */
  bool frozen;  /* a module's array of members */
};

/* Arguments of a call: values, and where and under what name they were written.
 */
typedef struct {
  int n;
  const Val *values;
  const AstArg *written; /* NULL: made by ppc, by place */
  Loc loc;               /* of the call */
} Args;

/* A schedule or optimizer as train names it. */
typedef struct Bound {
  const AstItem *item;
  Args args;
  Loc loc;
} Bound;

typedef struct {
  const char *name;
  Val value;
  Loc loc;
  enum {
    SLOT_LET,
    SLOT_ARGUMENT,
    SLOT_DIM,
    SLOT_FN,
    SLOT_MEMBER,
    SLOT_STATE
  } kind;
} Slot;

struct Scope {
  Scope *parent;
  Slot *slots;
  int n, cap;
  bool captured; /* a closure may hold it: not reused */
  bool open;     /* of a module, an optimizer, train: all names are in sight
                    everywhere in it */
  Instance *instance;  /* of a module's scope */
  const AstFile *file; /* of the outermost scope of a file */
};

struct Instance {
  const char *path; /* "h.0.attn", "" for the model */
  const AstItem *module;
  Scope *scope;
  Closure *call; /* its function without a name, or NULL */
  Loc loc;
};

struct Param {
  const char *name;
  Type type;
  Loc loc;
  Init init;
  VEC(Tensor *) read; /* per stage, NULL: not yet */
};

/* --- tracing --- */

typedef enum {
  TRACE_LOSS,
  TRACE_GENERATE,
  TRACE_DERIVATIVE,
  TRACE_NUMBERS,
  TRACE_UPDATE
} TraceKind;

struct Trace {
  Trace *outer; /* DERIVATIVE: what it may capture from */
  TraceKind kind;
  Op func;
  Builder b;
  PtrMap known;           /* DERIVATIVE: outer Value.ptr → Tensor * here */
  VEC(Tensor *) captured; /* outer tensors, in the order of their arguments */
};

/* Set while the body of a function that states its derivative runs. */
typedef struct Guard {
  int64_t floor; /* tensors up to this serial are not its own … */
  int n;
  Tensor *const *allowed; /* … but these are its arguments */
} Guard;

/* --- the evaluator --- */

typedef struct {
  Loc loc; /* of the call */
  const char *name;
  Instance *instance; /* whose function runs (free functions: the caller's) */
} CallFrame;

typedef struct {
  const AstItem *item;
  const AstExpr *override; /* -D */
  enum { ITEM_FRESH, ITEM_RUNNING, ITEM_DONE } state;
  Val value;
} ItemState;

typedef enum {
  SETTING_RANKS,
  SETTING_MICROBATCH,
  SETTING_MICROBATCHES,
  SETTING_STEPS,
  SETTING_COUNT
} SettingId;

typedef struct {
  const AstExpr *expr; /* NULL: overridden or missing */
  Loc loc;
  int64_t value;
  enum { SETTING_FRESH, SETTING_RUNNING, SETTING_DONE, SETTING_FAILED } state;
} Setting;

enum { EVAL_MAX_DEPTH = 1000, EVAL_STACK_VALUES = 1 << 16 };

struct Eval {
  Ir *ir;
  Diag *diag;
  Arena *arena;
  const DslProgram *program;
  const CompileOptions *options;
  /* budget */
  int64_t steps, step_limit;
  size_t bytes, byte_limit;
  int64_t ops, op_limit;
  char *stack_base; /* C stack at the start; a guard against its end */
  size_t stack_limit;
  bool stop, fatal;
  Loc here;     /* of the statement that runs */
  Loc refused;  /* the `require` that did not hold; line 0: none */
  Val result;   /* of the `return` that unwinds */
  Loc returned; /* that `return`'s place */
  /* stacks */
  VEC(CallFrame) frames;
  int depth;
  Val *values; /* arguments of the calls under way */
  int n_values;
  VEC(Scope *) free_scopes;
  /* names */
  Scope **file_scopes; /* per program file */
  VEC(ItemState) items;
  PtrMap item_index; /* AstItem → index + 1 */
  int n_sources;     /* of the Diag, before the command line's */
  /* errors */
  VEC(Loc) reported;
  VEC(CallFrame) pending; /* notes still to come behind the last error */
  bool muted; /* the last error was a repetition: its notes are dropped */
  /* tracing */
  Trace *trace;
  Guard *guard;
  int64_t serial;
  int stage;
  bool stages_open; /* stage_end means something here */
  Loc last_stage_end;
  int n_derivatives, n_prints;
  Map occurrences; /* of random, by path */
  Map outputs;     /* name → Loc * */
  struct {         /* generate: the call whose argument gives the length */
    const Closure *fn;
    int64_t length;
  } watch;
  /* the program */
  pp_dtype real;
  bool narrows; /* `precision bf16`: f32 operands of products and attention are rounded to bf16 */
  bool tf32;    /* `precision tf32`: products of f32 are computed in TF32 */
  bool training;
  Instance *model;
  VEC(Param *) params;
  VEC(Source *) sources;
  Scope *train_scope;
  Setting settings[SETTING_COUNT];
  Bound *optimizer, *schedule;
  Val clip;
  const char *states; /* "m,v" */
  /* a schedule that runs */
  struct {
    ScheduledActions *out; /* NULL: none runs */
    int rank;              /* -1: outside `rank` */
    int ranks, stages, microbatches;
    int overlap, n_overlaps;
    int base; /* frames below `rank` */
  } schedule_run;
};

struct Program {
  Eval e; /* first: a builtin finds the program from it */
  const AstTrain *train;        /* NULL: a schedule alone */
  const AstExpr *schedule_expr; /* of train or --schedule */
  Loc schedule_loc, ranks_loc;
  struct ScheduleCsv *csv; /* --schedule=FILE.csv: takes its place; or NULL */
  int n_stages;
  ScheduledActions ran; /* by the schedule's last run that went well … */
  int ran_ranks, ran_stages, ran_microbatches; /* … for these; ranks 0: none */
};

/* Where a statement runs: the block's scope, and what the special statements of
 * its construct mean. */
typedef struct Body {
  Instance *instance;  /* a module's body; NULL elsewhere */
  Scope *hoisted;      /* its functions are declared already */
  int loops;           /* `for` around the statement in the module's body */
  const AstStmt *rank; /* a schedule's: set when `rank` was met */
  Scope *rank_scope;
} Body;

typedef struct {
  Scope *scope;
  bool own;   /* the scope is this block's */
  Body *body; /* of a module or schedule, or NULL */
} Frame;

typedef enum {
  FLOW_NEXT,
  FLOW_BREAK,
  FLOW_CONTINUE,
  FLOW_RETURN,
  FLOW_STOP
} Flow;

/* --- value.c: values, lists, scopes, errors --- */

#define POISON ((Val){.kind = VAL_POISON})
#define NONE ((Val){.kind = VAL_NONE})
static inline Val val_int(int64_t v) {
  return (Val){.kind = VAL_INT, .int_value = v};
}
static inline Val val_float(double v) {
  return (Val){.kind = VAL_FLOAT, .float_value = v};
}
static inline Val val_bool(bool v) {
  return (Val){.kind = VAL_BOOL, .bool_value = v};
}
static inline bool val_is_number(Val v) {
  return v.kind == VAL_INT || v.kind == VAL_FLOAT;
}
static inline double val_number(Val v) {
  return v.kind == VAL_INT ? (double)v.int_value : v.float_value;
}

const char *
val_describe(Eval *e,
             Val v); /* "an int", "the tensor f32[4, 3]": for messages */
void val_print(Str *out, Val v, int depth);
/* Equality as `==` means it on compile-time values; false and an error where
 * there is none. */
bool val_equal(Eval *e, Loc loc, Val a, Val b, bool *out_equal);

void *eval_alloc(Eval *e, size_t size_bytes); /* counts against the budget */
Val list_new(Eval *e, int64_t capacity);
void list_push(Eval *e, List *list, Val v);
const char *eval_printf(Eval *e, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

Scope *scope_push(Eval *e, Scope *parent);
void scope_pop(Eval *e, Scope *scope); /* keeps it for reuse unless captured */
void scope_capture(Scope *scope);      /* it and all around it */
Slot *scope_declare(Eval *e, Scope *scope, int kind, AstName name, Val v);
Slot *scope_own(
    Scope *scope,
    const char *name); /* the last of that name in this scope alone, or NULL */
/* The slot that `name` means when said at `at`, or NULL. */
Slot *scope_find(Scope *scope, const char *name, Loc at);

/* Reports once per place; gives POISON. Specific notes by eval_note follow,
 * then the chain of calls. */
Val eval_error(Eval *e, Loc loc, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void eval_note(Eval *e, Loc loc, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void eval_flush_notes(Eval *e);
/* Ends the run. */
void eval_fatal(Eval *e, Loc loc, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void eval_stop(Eval *e);

/* --- eval.c: expressions --- */

Val eval_expr(Eval *e, const AstExpr *expr, Scope *scope);
Val eval_binary(Eval *e, Loc loc, AstOp op, Val a, Val b);
/* A value, not several results or none. */
Val eval_value(Eval *e, const AstExpr *expr, Scope *scope);
/* False when it has no compile-time truth (reported; the evaluator stops). */
bool eval_condition(Eval *e, const AstExpr *expr, Scope *scope,
                    const char *what, bool *out);
bool eval_int(Eval *e, const AstExpr *expr, Scope *scope, const char *what,
              int64_t *out);
Val eval_item(Eval *e, const AstItem *item, Loc loc);
Val eval_slot(Eval *e, Slot *slot, Loc loc);
Scope *eval_file_scope(Eval *e, const AstFile *file);
Val eval_member_of(Eval *e, Instance *instance, const char *name, Loc loc);
bool range_bounds(Eval *e, const AstExpr *range, Scope *scope, int64_t *out_a,
                  int64_t *out_b);

/* --- call.c: statements, functions --- */

Flow exec_block(Eval *e, const AstBlock *block, Scope *scope, Body *body);
Flow exec_stmts(Eval *e, const AstBlock *block, Frame *frame);
Val eval_call(Eval *e, const AstExpr *expr, Scope *scope);
/* Evaluates written arguments onto the value stack; release by args_release. */
bool args_eval(Eval *e, AstArgs written, Scope *scope, Loc loc, Args *out);
void args_release(Eval *e, const Args *args);
/* Calls a function value with values by place or as written. */
Val call_value(Eval *e, Val fn, Args args);
Val call_with(Eval *e, Val fn, int n, const Val *values, Loc loc);
Closure *closure_new(Eval *e, const AstFn *fn, Scope *scope);
/* Declares the functions that stand at the top of a module's or an optimizer's
 * body; the nameless one is out. */
void hoist_functions(Eval *e, const AstBlock *body, Scope *scope,
                     Closure **out_nameless);
/* Fills `scope` with parameters: given, preset (by name), default; checks
 * shapes. What: "function". */
typedef struct {
  int n;
  const char *const *names;
  const Val *values;
} Presets;
bool bind_params(Eval *e, const AstParams *params, Args args,
                 const Presets *presets, Scope *scope, const char *what,
                 const char *name, Loc declared);
/* Checks names and number of arguments alone. */
bool check_args(Eval *e, const AstParams *params, Args args,
                const Presets *presets, const char *what, const char *name,
                Loc declared);
/* True while fewer than the depth limit; reports otherwise. Pair with
 * call_leave. */
Scope *
frame_scope(Eval *e,
            Frame *frame); /* the block's own scope, made when first needed */
bool call_enter(Eval *e, Loc loc, const char *name, Instance *instance);
void call_leave(Eval *e);

/* --- shapes.c --- */

bool shape_match(Eval *e, const AstParam *param, Val v, Scope *scope,
                 Loc arg_loc);
/* A declared shape without pattern names: dims evaluated. */
bool shape_eval(Eval *e, const AstShape *shape, Scope *scope,
                pp_dtype otherwise, Type *out);
/* A list of ints as a shape; `free` allows one -1. */
bool shape_from_list(Eval *e, Val list, Loc loc, bool free, int *out_rank,
                     int64_t *out_dims);
bool shape_check_size(Eval *e, Loc loc, int rank, const int64_t *dims);

/* --- builtins.c --- */

enum { BUILTIN_MAX_ARGS = 6 };
typedef struct {
  Loc loc;                 /* of the call */
  Val v[BUILTIN_MAX_ARGS]; /* UNSET: not given */
  Loc at[BUILTIN_MAX_ARGS];
  const Builtin *builtin;
} BuiltinCall;

struct Builtin {
  const char *name;
  int min, positional,
      max; /* arguments: needed, by place at most, known names */
  const char *params[BUILTIN_MAX_ARGS];
  Val (*run)(Eval *e,
             const BuiltinCall *call); /* NULL: a value, see builtin_value */
};
Val builtin_value(Eval *e, const char *name,
                  Loc loc); /* UNSET when there is none */
Val builtin_call(Eval *e, const Builtin *b, Args args);
extern const Builtin builtins[];
extern const int builtins_count;
bool builtin_int(Eval *e, const BuiltinCall *call, int i, const char *what,
                 int64_t *out);
bool builtin_bool(Eval *e, const BuiltinCall *call, int i, bool otherwise,
                  bool *out);

/* tensor_builtins.c */
#define BUILTIN(name) Val builtin_##name(Eval *e, const BuiltinCall *call)
BUILTIN(unary);
BUILTIN(reduce);
BUILTIN(min);
BUILTIN(max);
BUILTIN(pow);
BUILTIN(select);
BUILTIN(concat);
BUILTIN(pad);
BUILTIN(transpose);
BUILTIN(permute);
BUILTIN(reshape);
BUILTIN(iota);
BUILTIN(random);
BUILTIN(gather);
BUILTIN(cast);
BUILTIN(shape);
BUILTIN(dtype);
BUILTIN(rank);
BUILTIN(name);
BUILTIN(attention);
BUILTIN(div);
BUILTIN(mod);
BUILTIN(abs);
/* train.c */
BUILTIN(source);

/* --- train_loss_scale.c --- */

BUILTIN(dynamic);
/* What `loss_scale` is set to; a constant 1 after an error. */
LossScale loss_scale_of(Eval *e, Val v, Loc loc);
/* modules.c */
BUILTIN(init);
/* run_schedule.c */
BUILTIN(action);
/* The name under which the running builtin was called: several share one
 * function. */
const char *builtin_name_of(const BuiltinCall *call);

/* --- tensors.c --- */

/* The builder of the function that is traced, set to `loc`; NULL after an error
 * when none is. */
Builder *trace_builder(Eval *e, Loc loc);
Val tensor_wrap(Eval *e, Loc loc, Value v,
                bool number); /* POISON for a null value */
/* The tensor as a value of the function that is traced; null after an error. */
Value tensor_use(Eval *e, Loc loc, Tensor *t);
Val tensor_unary(Eval *e, Loc loc, OpId op, Val x);
Val tensor_binary(Eval *e, Loc loc, AstOp op, Val a, Val b);
Val tensor_map2(Eval *e, Loc loc, OpId op, Val a, Val b);
Val tensor_compare(Eval *e, Loc loc, const char *predicate, Val a, Val b);
Val tensor_logic(Eval *e, Loc loc, OpId op, Val a, Val b);
Val tensor_select(Eval *e, Loc loc, Val c, Val a, Val b);
Val tensor_matmul(Eval *e, Loc loc, Val a, Val b);
/* Of a product or attention, as `precision` wants it; x itself otherwise. */
Value tensor_narrow(Eval *e, Builder *b, Value x);
/* bf16 as f32, in which everything else is computed; x itself otherwise. */
Value tensor_widen(Builder *b, Value x);
Val tensor_index(Eval *e, const AstExpr *expr, Tensor *t, Scope *scope);
/* A number as a tensor of this type, checked; null after an error. */
Value tensor_constant(Eval *e, Loc loc, Val number, Type type);
/* v (tensor or number) as exactly `type`: numbers rounded, nothing else
 * converted. `what` for the message. */
Value tensor_as(Eval *e, Loc loc, Val v, Type type, const char *what);
void tensor_name(Eval *e, Val v, const char *name, int64_t since);
const char *tensor_shape_text(Eval *e, Type t);
Trace *trace_open(Eval *e, TraceKind kind, const char *name, Loc loc);
void trace_close(Eval *e, Trace *trace, Loc loc, int n, const Value *results);

/* --- modules.c, derivative.c, optimizer.c, train.c --- */

Instance *module_instantiate(Eval *e, const AstItem *item, Args args,
                             const char *path);
Flow exec_module_stmt(Eval *e, const AstStmt *s, Frame *frame);
Flow exec_output(Eval *e, const AstStmt *s, Scope *scope);
Flow exec_stage_end(Eval *e, const AstStmt *s);
Flow exec_overlap(Eval *e, const AstStmt *s, Frame *frame);
Val param_read(Eval *e, Param *param, Loc loc);
Val source_read(Eval *e, Source *source, Loc loc);
const char *
instance_path(Eval *e); /* of the running function's instance, "" outside */

Val derivative_finish(Eval *e, const Closure *closure, Scope *scope,
                      Guard *guard, const Val *passed, Val result, Loc loc);
/* The tensors among the arguments, for the guard. */
bool derivative_begin(Eval *e, const Closure *closure, Scope *scope,
                      Guard *out_guard, Val *out_passed, Loc loc);

bool optimizer_trace(Eval *e);
bool clip_trace(Eval *e, Loc loc);

/* All but the schedule: settings, data, model, loss, optimizer. */
bool train_run(Program *p);
/* Without a model: --ranks, --microbatches and the schedule of the command line. */
bool train_run_schedule(Program *p);
int64_t setting_value(Eval *e, SettingId id, Loc loc, bool *out_ok);

#endif
