/* What the files of compiler/ir share: the table made from ops.def, the Ir itself, and the view of
 * an op that inference and verification work on. Nobody outside this folder includes it. */
#ifndef PPC_IR_INTERNAL_H
#define PPC_IR_INTERNAL_H

#include "compiler/ir/ir.h"
#include "mlir-c/BuiltinAttributes.h"
#include "mlir-c/BuiltinTypes.h"

/* --- the table (table.c) ---------------------------------------------------------------------- */

typedef enum {
  KIND_INT,
  KIND_FLOAT,
  KIND_FLOAT_OR_INT,
  KIND_STRING,
  KIND_UNIT,
  KIND_INTS,
  KIND_SYMBOL,
  KIND_TYPE,
  KIND_ARRAY,
  KIND_COUNT
} AttrKind;

typedef struct {
  const char *name;
  AttrKind kind;
  bool required;
} AttrDef;

enum {
  MAX_INFERRED = 3,  /* results that inference can make */
  MAX_OWN_ATTRS = 12, /* attributes of one op in the table */
  WHY_SIZE = 512,
  VARIADIC_SLOTS = IR_MAX_RUNS /* of an op with any number of operands (results) */
};

/* An op that exists or is about to: what inference sees. */
typedef struct {
  Ir *ir;
  OpId id;
  int n_in;
  const Value *in;
  int n_attrs;
  const MlirNamedAttribute *attrs;
  int n_out;                 /* results given, or those of the op */
  Type out[MAX_INFERRED];    /* inference writes them */
  char why[WHY_SIZE];        /* the reason, when something is wrong */
} OpArgs;

/* Both return false with `why` written. `given` is what the op's results are. */
typedef bool (*InferFn)(OpArgs *a);
typedef bool (*VerifyFn)(OpArgs *a, const Type *given);

typedef struct {
  const char *name;      /* "matmul" */
  const char *full_name; /* "pp.matmul" */
  OpClass op_class;
  unsigned traits;
  int min_in, max_in, min_out, max_out; /* max -1: any number */
  InferFn infer;   /* null: the types are given */
  VerifyFn verify; /* null: nothing beyond arity, attributes and inference */
  int first_attr; /* in attr_table; op_attr_count(id) rows */
} OpDef;

extern const OpDef op_table[OP_COUNT];
extern const AttrDef attr_table[];
extern const int attr_table_count;
int op_attr_count(OpId id);
void table_prepare(void); /* fills the hash that op_id uses; the first ir_create calls it */

/* --- dtypes (types.c) --------------------------------------------------------------------------- */

typedef struct {
  bool is_real;
  MlirType (*make)(MlirContext ctx);
  bool (*is)(MlirType element);
} DtypeDef;

extern const DtypeDef dtype_table[PP_DTYPE_COUNT];
bool type_is_tensor(Type t); /* a ranked, static tensor of one of our dtypes, of rank PP_MAX_RANK or less */
bool type_is_sized(Type t);  /* no axis below 1, at most 64 TiB: no arithmetic on sizes overflows */

/* --- the Ir (ir.c) -------------------------------------------------------------------------------- */

struct Ir {
  Arena *arena;
  Diag *diag;
  MlirContext ctx;
  MlirModule module;
  MlirType elements[PP_DTYPE_COUNT];
  MlirIdentifier *attr_names;     /* one for each row of attr_table */
  MlirIdentifier stage_id, name_id, path_id, backward_id;
  MlirAttribute unit;
  PtrMap locations;               /* MlirLocation.ptr → Loc *, made on both ways */
  Loc last_loc;                   /* the last one converted: ops come in runs */
  MlirLocation last_location;
  Map parameters;                 /* name → Op.ptr of pp.parameter */
};

MlirStringRef ref(const char *text);
MlirLocation ir_location(Ir *ir, Loc loc);
Loc ir_loc(Ir *ir, MlirLocation location);
MlirAttribute op_attr(Op op, const char *name);
MlirNamedAttribute named_attr(MlirIdentifier name, MlirAttribute value);
MlirAttribute int_attr(Ir *ir, int64_t value);
MlirAttribute string_attr(Ir *ir, const char *value);
MlirAttribute lines_attr(Ir *ir, int64_t n, const Loc *lines);
void builder_insert(Builder *b, Op op);
void op_set_segments(Op op); /* of an op with any number of operands or results */


/* --- inference and verification (infer.c, verify.c) ------------------------------------------------- */

bool args_fail(OpArgs *a, const char *format, ...) __attribute__((format(printf, 2, 3)));
MlirAttribute args_attr(const OpArgs *a, const char *name); /* null when absent */
bool args_unit(const OpArgs *a, const char *name);
bool args_has_text(const OpArgs *a, const char *name, const char *text); /* a string attribute that is there and equal */
int64_t args_int(const OpArgs *a, const char *name, int64_t otherwise);
bool args_check_operands(OpArgs *a);  /* number, and that they are tensors */
bool args_check_attrs(OpArgs *a);     /* required ones are there, all are of their kind */
bool args_check_results(OpArgs *a, int n, const Type *given);  /* number, and that they are tensors */
bool args_check_inferred(OpArgs *a, int n, const Type *given); /* against what was inferred */
bool args_check_sizes(OpArgs *a, int n, const Type *given);
const char *type_put(char *buffer, size_t size, Type t); /* "f32[4, 128]" */

#define INFER(name) bool infer_##name(OpArgs *a)
INFER(same);
INFER(compare);
INFER(select);
INFER(reduce);
INFER(permute);
INFER(slice);
INFER(concat);
INFER(pad);
INFER(matmul);
INFER(nothing);
INFER(gather);
INFER(scatter_add);
INFER(attention);
INFER(attention_grad);

#define VERIFY(name) bool verify_##name(OpArgs *a, const Type *given)
VERIFY(constant);
VERIFY(iota);
VERIFY(random);
VERIFY(number);
VERIFY(real);
VERIFY(product);
VERIFY(boolean);
VERIFY(compare);
VERIFY(select);
VERIFY(cast);
VERIFY(reshape);
VERIFY(broadcast);
VERIFY(matmul);
VERIFY(matmul_accumulate);
VERIFY(scatter_accumulate);
VERIFY(gather);
VERIFY(scatter_add);
VERIFY(attention);
VERIFY(loss);
VERIFY(output);
VERIFY(control);
VERIFY(rescale);
VERIFY(with_derivative);
VERIFY(parameter);
VERIFY(source);
VERIFY(rank);
VERIFY(transfers);

#endif
