/* Element types and tensor types. One row of dtype_table for each pp_dtype: a new element type
 * is a row here and a value of the enum. The encoding of a tensor type is empty for now; a sharding
 * will stand there. */
#include <stdio.h>
#include <string.h>

#include "compiler/ir/internal.h"
#include "runtime/kernels/bf16.h"

static MlirType make_i32(MlirContext ctx) { return mlirIntegerTypeGet(ctx, 32); }
static MlirType make_bool(MlirContext ctx) { return mlirIntegerTypeGet(ctx, 1); }
static bool is_integer(MlirType t, unsigned bits) {
  return mlirTypeIsAInteger(t) && mlirIntegerTypeGetWidth(t) == bits && mlirIntegerTypeIsSignless(t);
}
static bool is_i32(MlirType t) { return is_integer(t, 32); }
static bool is_bool(MlirType t) { return is_integer(t, 1); }

const DtypeDef dtype_table[PP_DTYPE_COUNT] = {
    [PP_F32] = {true, mlirF32TypeGet, mlirTypeIsAF32},
    [PP_F64] = {true, mlirF64TypeGet, mlirTypeIsAF64},
    [PP_I32] = {false, make_i32, is_i32},
    [PP_BOOL] = {false, make_bool, is_bool},
    [PP_BF16] = {true, mlirBF16TypeGet, mlirTypeIsABF16},
};

int64_t dtype_bytes(pp_dtype d) { return pp_dtype_bytes(d); }
const char *dtype_name(pp_dtype d) { return pp_dtype_name(d); }

Type type_tensor(Ir *ir, pp_dtype dtype, int rank, const int64_t *dims) {
  return mlirRankedTensorTypeGet(rank, dims, ir->elements[dtype], mlirAttributeGetNull());
}

Type type_scalar(Ir *ir, pp_dtype dtype) { return type_tensor(ir, dtype, 0, NULL); }

Type type_with_dtype(Ir *ir, Type t, pp_dtype dtype) {
  int64_t dims[PP_MAX_RANK];
  int rank = type_rank(t);
  for (int i = 0; i < rank; i++) dims[i] = type_dim(t, i);
  return mlirRankedTensorTypeGet(rank, dims, ir->elements[dtype], mlirRankedTensorTypeGetEncoding(t));
}

/* PP_DTYPE_COUNT for an element type that is not ours. */
static pp_dtype element_dtype(MlirType element) {
  int d = 0;
  while (d < PP_DTYPE_COUNT && !dtype_table[d].is(element)) d++;
  return (pp_dtype)d;
}

pp_dtype type_dtype(Type t) {
  pp_dtype d = element_dtype(mlirShapedTypeGetElementType(t));
  if (d == PP_DTYPE_COUNT) bug("a tensor of an unknown element type");
  return d;
}

bool type_is_tensor(Type t) {
  return mlirTypeIsARankedTensor(t) && mlirShapedTypeGetRank(t) <= PP_MAX_RANK && mlirShapedTypeHasStaticShape(t) &&
         element_dtype(mlirShapedTypeGetElementType(t)) != PP_DTYPE_COUNT;
}

int type_rank(Type t) { return (int)mlirShapedTypeGetRank(t); }
int64_t type_dim(Type t, int axis) { return mlirShapedTypeGetDimSize(t, axis); }

static int64_t product(int64_t a, int64_t b) {
  int64_t p;
  return __builtin_mul_overflow(a, b, &p) ? INT64_MAX : p;
}

/* INT64_MAX when there are more; no op is built with such a type. */
int64_t type_elements(Type t) {
  int64_t n = 1;
  for (int i = 0; i < type_rank(t); i++) n = product(n, type_dim(t, i));
  return n;
}

int64_t type_bytes(Type t) { return product(type_elements(t), dtype_bytes(type_dtype(t))); }

bool type_is_sized(Type t) {
  for (int i = 0; i < type_rank(t); i++)
    if (type_dim(t, i) < 1) return false;
  return type_bytes(t) <= (int64_t)1 << 46;
}
bool type_equal(Type a, Type b) { return a.ptr == b.ptr; } /* types are uniqued */
bool type_is_real(Type t) { return dtype_table[type_dtype(t)].is_real; }

/* Adjoints are summed, so those of bf16 values are f32. */
Type type_adjoint(Ir *ir, Type t) { return type_dtype(t) == PP_BF16 ? type_with_dtype(ir, t, PP_F32) : t; }

double dtype_round(pp_dtype d, double x) {
  if (d != PP_F32 && d != PP_BF16) return x;
  float f = (float)x;
  return d == PP_F32 ? f : pp_f32_from_bf16(pp_bf16_from_f32(f));
}

const char *type_put(char *buffer, size_t size, Type t) {
  if (!type_is_tensor(t)) {
    snprintf(buffer, size, "(not a tensor)");
    return buffer;
  }
  int rank = type_rank(t), n = snprintf(buffer, size, "%s%s", dtype_name(type_dtype(t)), rank ? "[" : "");
  for (int i = 0; i < rank && n < (int)size; i++)
    n += snprintf(buffer + n, size - (size_t)n, "%s%lld", i ? ", " : "", (long long)type_dim(t, i));
  if (rank && n < (int)size) snprintf(buffer + n, size - (size_t)n, "]");
  return buffer;
}

const char *type_text(Arena *arena, Type t) {
  char buffer[256];
  return arena_strdup(arena, type_put(buffer, sizeof buffer, t));
}
