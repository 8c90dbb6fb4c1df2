/* The only door to MLIR: everything else works with the types and functions of this header.
 * A function that makes ops takes a Builder; all ops come from the table in ops.def. */
#ifndef PPC_IR_H
#define PPC_IR_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "compiler/base/arena.h"
#include "compiler/base/diag.h"
#include "compiler/base/map.h"
#include "compiler/base/vec.h"
#include "mlir-c/IR.h"
#include "runtime/abi.h"

typedef enum {
#define OP(id, ...) OP_##id,
#include "compiler/ir/ops.def"
  OP_COUNT,
  OP_NONE = OP_COUNT /* not of the pp dialect: builtin.module, func.func, func.return */
} OpId;

typedef enum { CLASS_LEAF, CLASS_MAP, CLASS_REDUCE, CLASS_MOVE, CLASS_PRODUCT, CLASS_SPECIAL, CLASS_EFFECT, CLASS_STRUCT } OpClass;
enum { IR_MAX_RUNS = 64 }; /* runs of one type among the operands (results) of an op */
enum { TRAIT_PURE = 1, TRAIT_COMMUTATIVE = 2, TRAIT_FREE = 4 };

typedef MlirOperation Op;
typedef MlirValue Value;
typedef MlirType Type;
typedef MlirBlock Block;
typedef VEC(Op) OpVec;
typedef VEC(Value) ValueVec;
typedef struct Builder Builder;

/* A module with all that is needed to read and change it. */
typedef struct Ir Ir;
Ir *ir_create(Arena *arena, Diag *diag);
void ir_destroy(Ir *ir);
Op ir_top(Ir *ir);          /* the builtin.module */
Block ir_body(Ir *ir);      /* its block */
Diag *ir_diag(Ir *ir);
Arena *ir_arena(Ir *ir);    /* lives as long as the Ir */

/* --- properties of ops ------------------------------------------------------------------------- */
const char *op_name(OpId id);   /* "matmul" */
OpClass op_class(OpId id);
unsigned op_traits(OpId id);
OpId op_id(Op op);              /* fast: by the uniqued name */
bool op_is_null(Op op);
bool value_is_null(Value v);
bool op_is_func(Op op);
bool op_is_call(Op op);
bool op_is_return(Op op);

/* --- types --------------------------------------------------------------------------------------- */
Type type_tensor(Ir *ir, pp_dtype dtype, int rank, const int64_t *dims);
Type type_scalar(Ir *ir, pp_dtype dtype);
Type type_with_dtype(Ir *ir, Type t, pp_dtype dtype);
Type type_adjoint(Ir *ir, Type t); /* of the adjoint of a value of type t */
pp_dtype type_dtype(Type t);
int type_rank(Type t);
int64_t type_dim(Type t, int axis);
int64_t type_elements(Type t);
int64_t type_bytes(Type t);
bool type_equal(Type a, Type b);
bool type_is_real(Type t);      /* f32 or f64: can have an adjoint */
const char *type_text(Arena *arena, Type t); /* "f32[4, 128]" */
int64_t dtype_bytes(pp_dtype d);
double dtype_round(pp_dtype d, double x); /* x as a value of a real dtype holds it */
const char *dtype_name(pp_dtype d);

/* --- values and ops -------------------------------------------------------------------------------- */
Type value_type(Value v);
bool value_equal(Value a, Value b);
Op value_owner(Value v);        /* null for a block argument */
int value_index(Value v);       /* result or argument number */
bool value_has_uses(Value v);
void value_replace(Value old, Value with); /* all uses */
OpVec value_users(Arena *arena, Value v);  /* one entry a use, oldest use first */
int op_n_operands(Op op);
Value op_operand(Op op, int i);
void op_set_operand(Op op, int i, Value v);
void op_set_operands(Op op, int n, const Value *v);
int op_n_results(Op op);
Value op_result(Op op, int i);
bool op_has_uses(Op op);
void op_erase(Op op);           /* no result may have uses */
Op op_clone_into(Builder *b, Op op, PtrMap *values); /* operands mapped through `values`, results entered there; keeps attributes and location */
/* Same op, operands (in either order when commutative), result types and attributes of the table; pp.stage,
 * pp.name and the location don't count. */
bool op_same(Op a, Op b);
uint64_t op_hash(Op op);        /* equal for ops that are the same */
Op op_parent(Op op);
Block op_block(Op op);
Op op_next(Op op);
void op_move_before(Op op, Op other);
Loc op_loc(Ir *ir, Op op);

int64_t op_int(Op op, const char *name, int64_t otherwise);
double op_float(Op op, const char *name, double otherwise);
bool op_unit(Op op, const char *name);
const char *op_string(Arena *arena, Op op, const char *name); /* null when absent; NUL-terminated */
const int64_t *op_ints(Arena *arena, Op op, const char *name, int64_t *out_n); /* null and 0 when absent */
Type op_type_attr(Op op, const char *name);
/* What a leaf reads that effects change, and what an effect changes that leaves read: a parameter's name stands for
 * its value, its gradients and its states, "" for the loss scale. Null: neither. */
const char *op_content(Arena *arena, Op op);
bool op_constant_is_float(Op constant);
void op_set_int(Ir *ir, Op op, const char *name, int64_t v);
void op_set_float(Ir *ir, Op op, const char *name, double v);
void op_set_unit(Ir *ir, Op op, const char *name);
void op_set_string(Ir *ir, Op op, const char *name, const char *v);
void op_set_ints(Ir *ir, Op op, const char *name, int64_t n, const int64_t *v);
void op_set_lines(Ir *ir, Op op, const char *name, int64_t n, const Loc *lines); /* an array of locations */
const Loc *op_lines(Ir *ir, Arena *arena, Op op, const char *name, int64_t *out_n);
void op_remove_attr(Op op, const char *name);
/* Attributes that any op may have: `pp.stage` (int), `pp.name` (the `let` that holds the result),
 * `pp.path` (the module whose function made it, "h.0.attn"),
 * `pp.backward` (unit: made by autodiff), `pp.weight_half` (unit: part of bwd_weight). */
int op_stage(Op op);            /* -1 when absent */
void op_set_stage(Ir *ir, Op op, int stage);

/* --- functions and modules ---------------------------------------------------------------------------- */
Op func_create(Ir *ir, Block where, Loc loc, const char *name);   /* empty body, no type yet */
Op func_find(Ir *ir, Op module, const char *name);                /* null op when absent */
const char *func_name(Arena *arena, Op func);
Block func_body(Op func);
Value func_add_arg(Ir *ir, Op func, Type t, Loc loc);             /* func_return or func_update_type sets the type */
int func_n_args(Op func);
Value func_arg(Op func, int i);
void func_return(Ir *ir, Op func, Loc loc, int n, const Value *v); /* appends func.return and sets the function's type */
Op func_return_op(Op func);
void func_update_type(Ir *ir, Op func);
Op module_create(Ir *ir, Block where, Loc loc, const char *name);  /* nested */
Block module_body(Op module);
OpVec block_ops(Arena *arena, Block block);                        /* in order, with the terminator */
OpVec ir_ops(Arena *arena, Op root, OpId id);                      /* nested ops of one kind, in order */
OpVec ir_funcs(Arena *arena, Op module);                           /* direct children */
Op ir_parameter(Ir *ir, const char *name);                         /* the `pp.parameter` of that name */
/* pp.call of a function at the top of the module, from wherever (func.call can't see past the module it stands in). */
Op call_create(Builder *b, Op func, int n, const Value *in, int n_out, const Type *out);
const char *call_callee(Arena *arena, Op call);
/* Clones func's body at b with args bound; out receives what it returns. The clones keep location and
 * attributes, but b's stage and backward mark are put on them where b has those. */
void func_inline(Builder *b, Op func, int n, const Value *args, Value *out);

/* --- building ------------------------------------------------------------------------------------------- */
struct Builder {
  Ir *ir;
  Block block;
  Op before;        /* null: at the end of the block */
  Loc loc;
  int stage;        /* >= 0: put on each op as pp.stage */
  bool backward;    /* put pp.backward on each op */
  const char *name; /* put on the next op as pp.name, then forgotten; may be null */
  const char *path; /* put on each op as pp.path: the module whose function made it; may be null */
};

typedef struct {
  const char *name;
  enum { ATTR_KIND_INT, ATTR_KIND_FLOAT, ATTR_KIND_STRING, ATTR_KIND_UNIT, ATTR_KIND_INTS, ATTR_KIND_SYMBOL, ATTR_KIND_TYPE, ATTR_KIND_LINES } kind;
  int64_t i;
  double f;
  const char *s;
  const int64_t *ints;
  int64_t n_ints;   /* of `ints` or `lines` */
  const Loc *lines;
  Type type;
} Attr;

/* Makes an op from the table. A null `out` asks for inference. On failure the reason is reported as
 * an error at b->loc ("add: shapes differ: f32[4] and f32[5]") and a null op comes back. A null operand
 * gives a null op without a report: the error was told where that value was to be made. */
Op ir_build(Builder *b, OpId id, int n_in, const Value *in, int n_out, const Type *out, int n_attrs, const Attr *attrs);

/* Short forms; each returns a null value after an error. */
Value ir_constant(Builder *b, Type t, double value);      /* real types */
Value ir_constant_int(Builder *b, Type t, int64_t value); /* i32, bool */
Value ir_map(Builder *b, OpId id, int n, const Value *in); /* NEG … OR, SELECT: types as inferred */
Value ir_compare(Builder *b, const char *predicate, Value x, Value y);
Value ir_cast(Builder *b, Value x, pp_dtype dtype);        /* x itself when it has that dtype */
Value ir_reduce(Builder *b, OpId id, Value x, int n_axes, const int64_t *axes); /* x itself without axes */
Value ir_reshape(Builder *b, Value x, int rank, const int64_t *dims); /* x itself when the shape is the same */
Value ir_permute(Builder *b, Value x, const int64_t *axes);
Value ir_transpose(Builder *b, Value x);                   /* last two axes */
Value ir_broadcast(Builder *b, Value x, Type to);          /* NumPy rule: reshape to the rank, then pp.broadcast; x itself when equal */
Value ir_slice(Builder *b, Value x, const int64_t *starts, const int64_t *limits);
Value ir_concat(Builder *b, int n, const Value *x, int axis); /* of many: in several ops */
Value ir_pad(Builder *b, Value x, const int64_t *before, const int64_t *after);
Value ir_matmul(Builder *b, Value x, Value y, bool ta, bool tb); /* one batch shape on both sides */

/* --- whole-module services ---------------------------------------------------------------------------------- */
bool ir_verify(Ir *ir);        /* MLIR's and ours; errors are reported at the ops' places */
void ir_print(FILE *out, Ir *ir, Op op, bool locations); /* text that mlir-opt-19 --irdl-file=… parses back */
void ir_print_irdl(FILE *out); /* the dialect */
typedef struct { int stage, rank; /* -1: all */ } PrettyOptions;
void ir_print_pretty(FILE *out, Ir *ir, Op op, PrettyOptions options); /* the form for people */

#endif
