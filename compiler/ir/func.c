/* Functions, nested modules, walks, calls and inlining. A function has one block; its type is set
 * when it returns, or by func_update_type. */
#include <string.h>

#include "compiler/ir/internal.h"

static MlirNamedAttribute own_attr(Ir *ir, const char *name, MlirAttribute value) {
  return named_attr(mlirIdentifierGet(ir->ctx, ref(name)), value);
}

/* --- functions ------------------------------------------------------------------------------------ */

Op func_create(Ir *ir, Block where, Loc loc, const char *name) {
  MlirAttribute type = mlirTypeAttrGet(mlirFunctionTypeGet(ir->ctx, 0, NULL, 0, NULL));
  MlirNamedAttribute attrs[] = {own_attr(ir, "sym_name", string_attr(ir, name)), own_attr(ir, "function_type", type)};
  MlirRegion region = mlirRegionCreate();
  mlirRegionAppendOwnedBlock(region, mlirBlockCreate(0, NULL, NULL));
  MlirOperationState state = mlirOperationStateGet(ref("func.func"), ir_location(ir, loc));
  mlirOperationStateAddAttributes(&state, 2, attrs);
  mlirOperationStateAddOwnedRegions(&state, 1, &region);
  Op func = mlirOperationCreate(&state);
  mlirBlockAppendOwnedOperation(where, func);
  return func;
}

Op func_find(Ir *ir, Op module, const char *name) {
  MlirAttribute wanted = string_attr(ir, name); /* uniqued: compare the address */
  for (Op op = mlirBlockGetFirstOperation(module_body(module)); !op_is_null(op); op = op_next(op))
    if (op_is_func(op) && op_attr(op, "sym_name").ptr == wanted.ptr) return op;
  return (Op){NULL};
}

const char *func_name(Arena *arena, Op func) { return op_string(arena, func, "sym_name"); }
Block func_body(Op func) { return mlirRegionGetFirstBlock(mlirOperationGetRegion(func, 0)); }
Value func_add_arg(Ir *ir, Op func, Type t, Loc loc) {
  return mlirBlockAddArgument(func_body(func), t, ir_location(ir, loc));
}
int func_n_args(Op func) { return (int)mlirBlockGetNumArguments(func_body(func)); }
Value func_arg(Op func, int i) { return mlirBlockGetArgument(func_body(func), i); }

void func_return(Ir *ir, Op func, Loc loc, int n, const Value *v) {
  MlirOperationState state = mlirOperationStateGet(ref("func.return"), ir_location(ir, loc));
  mlirOperationStateAddOperands(&state, n, v);
  mlirBlockAppendOwnedOperation(func_body(func), mlirOperationCreate(&state));
  func_update_type(ir, func);
}

/* Null when the function has no return yet. */
Op func_return_op(Op func) { return mlirBlockGetTerminator(func_body(func)); }

void func_update_type(Ir *ir, Op func) {
  Op ret = func_return_op(func);
  int n_in = func_n_args(func), n_out = op_is_null(ret) ? 0 : op_n_operands(ret);
  Arena *tmp = arena_create();
  MlirType *t = arena_alloc_array(tmp, (size_t)(n_in + n_out), sizeof *t);
  for (int i = 0; i < n_in; i++) t[i] = value_type(func_arg(func, i));
  for (int i = 0; i < n_out; i++) t[n_in + i] = value_type(op_operand(ret, i));
  MlirType type = mlirFunctionTypeGet(ir->ctx, n_in, t, n_out, t + n_in);
  mlirOperationSetAttributeByName(func, ref("function_type"), mlirTypeAttrGet(type));
  arena_destroy(tmp);
}

/* --- modules and walks ------------------------------------------------------------------------------ */

Op module_create(Ir *ir, Block where, Loc loc, const char *name) {
  Op module = mlirModuleGetOperation(mlirModuleCreateEmpty(ir_location(ir, loc)));
  op_set_string(ir, module, "sym_name", name);
  mlirBlockAppendOwnedOperation(where, module);
  return module;
}

Block module_body(Op module) { return mlirRegionGetFirstBlock(mlirOperationGetRegion(module, 0)); }

OpVec block_ops(Arena *arena, Block block) {
  OpVec ops = {0};
  for (Op op = mlirBlockGetFirstOperation(block); !op_is_null(op); op = op_next(op)) VEC_PUSH(arena, &ops, op);
  return ops;
}

OpVec ir_funcs(Arena *arena, Op module) {
  OpVec funcs = {0};
  for (Op op = mlirBlockGetFirstOperation(module_body(module)); !op_is_null(op); op = op_next(op))
    if (op_is_func(op)) VEC_PUSH(arena, &funcs, op);
  return funcs;
}

typedef struct {
  Arena *arena;
  OpId id;
  OpVec found;
} Collect;

static MlirWalkResult collect(Op op, void *data) {
  Collect *c = data;
  if (op_id(op) == c->id) VEC_PUSH(c->arena, &c->found, op);
  return MlirWalkResultAdvance;
}

OpVec ir_ops(Arena *arena, Op root, OpId id) {
  Collect c = {.arena = arena, .id = id};
  mlirOperationWalk(root, collect, &c, MlirWalkPreOrder);
  return c.found;
}

Op ir_parameter(Ir *ir, const char *name) {
  return (Op){map_get(&ir->parameters, name)};
}

/* --- calls --------------------------------------------------------------------------------------------- */

Op call_create(Builder *b, Op func, int n, const Value *in, int n_out, const Type *out) {
  Attr callee = {.name = "callee", .kind = ATTR_KIND_SYMBOL, .s = func_name(b->ir->arena, func)};
  return ir_build(b, OP_CALL, n, in, n_out, out, 1, &callee);
}

const char *call_callee(Arena *arena, Op call) { return op_string(arena, call, "callee"); }

void func_inline(Builder *b, Op func, int n, const Value *args, Value *out) {
  Arena *tmp = arena_create();
  PtrMap values = {0};
  Builder in = *b;
  if (n != func_n_args(func)) bug("a call with %d arguments of a function of %d", n, func_n_args(func));
  for (int i = 0; i < n; i++) ptrmap_put(tmp, &values, func_arg(func, i).ptr, (void *)(uintptr_t)args[i].ptr);
  OpVec ops = block_ops(tmp, func_body(func));
  for (int i = 0; i < ops.n; i++) {
    if (op_is_return(ops.at[i])) continue;
    Op copy = op_clone_into(&in, ops.at[i], &values);
    if (b->stage >= 0) op_set_stage(b->ir, copy, b->stage);
    if (b->backward) op_set_unit(b->ir, copy, "pp.backward");
  }
  Op ret = func_return_op(func);
  for (int i = 0; i < op_n_operands(ret); i++) {
    Value v = op_operand(ret, i);
    void *mapped = ptrmap_get(&values, v.ptr);
    out[i] = mapped ? (Value){mapped} : v;
  }
  arena_destroy(tmp);
}
