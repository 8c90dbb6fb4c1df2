/* The Ir and the readers and writers of single values, ops and attributes: thin wrappers over MLIR's
 * C API. In: source places as Loc. Out: MLIR locations and back, through a side table, since the
 * C API can't take a location apart. Errors that MLIR itself reports go to the Diag. */
#include <stdlib.h>
#include <string.h>

#include "compiler/ir/internal.h"
#include "mlir-c/Diagnostics.h"
#include "mlir-c/Dialect/Func.h"
#include "mlir-c/Dialect/IRDL.h"

MlirStringRef ref(const char *text) { return mlirStringRefCreateFromCString(text); }

/* --- places -------------------------------------------------------------------------------------- */

MlirLocation ir_location(Ir *ir, Loc loc) {
  if (loc.line <= 0 || loc.file < 0 || loc.file >= diag_source_count(ir->diag))
    return mlirLocationUnknownGet(ir->ctx);
  Loc last = ir->last_loc;
  if (last.line == loc.line && last.col == loc.col && last.file == loc.file) return ir->last_location;
  MlirLocation location = mlirLocationFileLineColGet(ir->ctx, ref(diag_source_name(ir->diag, loc.file)),
                                                     (unsigned)loc.line, (unsigned)loc.col);
  if (!ptrmap_find(&ir->locations, location.ptr)) {
    Loc *entry = arena_alloc(ir->arena, sizeof *entry);
    *entry = loc;
    ptrmap_put(ir->arena, &ir->locations, location.ptr, entry);
  }
  ir->last_loc = loc;
  ir->last_location = location;
  return location;
}

static void append(MlirStringRef text, void *str) { str_append(str, text.data, text.length); }

static int source_by_name(Diag *diag, const char *name, size_t length) {
  for (int i = 0; i < diag_source_count(diag); i++) {
    const char *candidate = diag_source_name(diag, i);
    if (strlen(candidate) == length && !memcmp(candidate, name, length)) return i;
  }
  return -1;
}

/* The first "file":line:col in the text of a location (a fused or a call-site one has several). */
static Loc parse_location(Diag *diag, const char *text) {
  Loc loc = {0, 0, 0};
  for (const char *q = strchr(text, '"'); q; q = strchr(q + 1, '"')) {
    const char *end = strchr(q + 1, '"');
    int line, col;
    if (!end || sscanf(end, "\":%d:%d", &line, &col) != 2) continue;
    int file = source_by_name(diag, q + 1, (size_t)(end - q - 1));
    if (file >= 0) return (Loc){file, line, col};
  }
  return loc;
}

Loc ir_loc(Ir *ir, MlirLocation location) {
  PtrMapEntry *known = ptrmap_find(&ir->locations, location.ptr);
  if (known) return *(Loc *)known->value;
  Str text = {0};
  mlirLocationPrint(location, append, &text);
  Loc *entry = arena_alloc(ir->arena, sizeof *entry);
  *entry = parse_location(ir->diag, str_text(&text));
  ptrmap_put(ir->arena, &ir->locations, location.ptr, entry);
  str_free(&text);
  return *entry;
}

Loc op_loc(Ir *ir, Op op) { return ir_loc(ir, mlirOperationGetLocation(op)); }

static MlirLogicalResult on_diagnostic(MlirDiagnostic d, void *user) {
  Ir *ir = user;
  Str text = {0};
  mlirDiagnosticPrint(d, append, &text);
  Loc loc = ir_loc(ir, mlirDiagnosticGetLocation(d));
  MlirDiagnosticSeverity severity = mlirDiagnosticGetSeverity(d);
  if (severity == MlirDiagnosticError) diag_error(ir->diag, loc, "%s", str_text(&text));
  if (severity == MlirDiagnosticWarning) diag_warning(ir->diag, loc, "%s", str_text(&text));
  str_free(&text);
  return mlirLogicalResultSuccess(); /* notes of MLIR quote its own form of ops: left out */
}

/* --- the Ir --------------------------------------------------------------------------------------- */

static MlirIdentifier identifier(Ir *ir, const char *name) { return mlirIdentifierGet(ir->ctx, ref(name)); }

static void load_dialect(Ir *ir, MlirDialectHandle handle) {
  mlirDialectHandleRegisterDialect(handle, ir->ctx);
  mlirDialectHandleLoadDialect(handle, ir->ctx);
}

/* Once for each context: MLIR doesn't survive a second load of the same IRDL module. */
static void load_pp_dialect(Ir *ir) {
  char *text = NULL;
  size_t size = 0;
  FILE *out = open_memstream(&text, &size);
  if (!out) bug("no memory for the dialect");
  ir_print_irdl(out);
  fclose(out);
  MlirModule irdl = mlirModuleCreateParse(ir->ctx, mlirStringRefCreate(text, size));
  if (mlirModuleIsNull(irdl)) bug("the IRDL text made from ops.def does not parse");
  if (mlirLogicalResultIsFailure(mlirLoadIRDLDialects(irdl))) bug("the pp dialect does not load");
  mlirModuleDestroy(irdl);
  free(text);
}

Ir *ir_create(Arena *arena, Diag *diag) {
  table_prepare();
  Ir *ir = arena_alloc(arena, sizeof *ir);
  ir->arena = arena;
  ir->diag = diag;
  ir->ctx = mlirContextCreateWithThreading(false);
  mlirContextAttachDiagnosticHandler(ir->ctx, on_diagnostic, ir, NULL);
  load_dialect(ir, mlirGetDialectHandle__func__());
  load_dialect(ir, mlirGetDialectHandle__irdl__());
  load_pp_dialect(ir);
  for (int d = 0; d < PP_DTYPE_COUNT; d++) ir->elements[d] = dtype_table[d].make(ir->ctx);
  ir->attr_names = arena_alloc_array(arena, (size_t)attr_table_count, sizeof *ir->attr_names);
  for (int i = 0; i < attr_table_count; i++) ir->attr_names[i] = identifier(ir, attr_table[i].name);
  ir->stage_id = identifier(ir, "pp.stage");
  ir->name_id = identifier(ir, "pp.name");
  ir->path_id = identifier(ir, "pp.path");
  ir->backward_id = identifier(ir, "pp.backward");
  ir->unit = mlirUnitAttrGet(ir->ctx);
  ir->module = mlirModuleCreateEmpty(mlirLocationUnknownGet(ir->ctx));
  return ir;
}

void ir_destroy(Ir *ir) {
  if (!ir) return;
  mlirModuleDestroy(ir->module);
  mlirContextDestroy(ir->ctx);
}

Op ir_top(Ir *ir) { return mlirModuleGetOperation(ir->module); }
Block ir_body(Ir *ir) { return mlirModuleGetBody(ir->module); }
Diag *ir_diag(Ir *ir) { return ir->diag; }
Arena *ir_arena(Ir *ir) { return ir->arena; }

/* --- values ----------------------------------------------------------------------------------------- */

bool value_is_null(Value v) { return mlirValueIsNull(v); }
Type value_type(Value v) { return mlirValueGetType(v); }
bool value_equal(Value a, Value b) { return mlirValueEqual(a, b); }

Op value_owner(Value v) { return mlirValueIsAOpResult(v) ? mlirOpResultGetOwner(v) : (Op){NULL}; }

int value_index(Value v) {
  return (int)(mlirValueIsAOpResult(v) ? mlirOpResultGetResultNumber(v) : mlirBlockArgumentGetArgNumber(v));
}

bool value_has_uses(Value v) { return !mlirOpOperandIsNull(mlirValueGetFirstUse(v)); }
void value_replace(Value old, Value with) {
  if (!value_equal(old, with)) mlirValueReplaceAllUsesOfWith(old, with);
}

OpVec value_users(Arena *arena, Value v) {
  OpVec users = {0};
  for (MlirOpOperand u = mlirValueGetFirstUse(v); !mlirOpOperandIsNull(u); u = mlirOpOperandGetNextUse(u))
    VEC_PUSH(arena, &users, mlirOpOperandGetOwner(u));
  for (int i = 0, k = users.n - 1; i < k; i++, k--) { /* MLIR keeps the newest use first */
    Op swap = users.at[i];
    users.at[i] = users.at[k];
    users.at[k] = swap;
  }
  return users;
}

/* --- ops ---------------------------------------------------------------------------------------------- */

bool op_is_null(Op op) { return mlirOperationIsNull(op); }

static bool has_name(Op op, const char *name) {
  return mlirStringRefEqual(mlirIdentifierStr(mlirOperationGetName(op)), ref(name));
}

bool op_is_func(Op op) { return has_name(op, "func.func"); }
bool op_is_call(Op op) { return has_name(op, "pp.call"); }
bool op_is_return(Op op) { return has_name(op, "func.return"); }

int op_n_operands(Op op) { return (int)mlirOperationGetNumOperands(op); }
Value op_operand(Op op, int i) { return mlirOperationGetOperand(op, i); }
void op_set_operand(Op op, int i, Value v) { mlirOperationSetOperand(op, i, v); }
void op_set_operands(Op op, int n, const Value *v) {
  mlirOperationSetOperands(op, n, v);
  OpId id = op_id(op);
  if (id != OP_NONE && op_table[id].max_in < 0) op_set_segments(op);
}
int op_n_results(Op op) { return (int)mlirOperationGetNumResults(op); }
Value op_result(Op op, int i) {
  if (op_is_null(op)) bug("result %d of an op that couldn't be built", i);
  return mlirOperationGetResult(op, i);
}

bool op_has_uses(Op op) {
  for (int i = 0; i < op_n_results(op); i++)
    if (value_has_uses(op_result(op, i))) return true;
  return false;
}

void op_erase(Op op) {
  if (op_has_uses(op)) bug("%s is erased while its result is used", op_name(op_id(op)));
  mlirOperationDestroy(op);
}

Op op_clone_into(Builder *b, Op op, PtrMap *values) {
  Op copy = mlirOperationClone(op); /* keeps attributes, regions and location */
  for (int i = 0; i < op_n_operands(op); i++) {
    void *mapped = ptrmap_get(values, op_operand(op, i).ptr);
    if (mapped) op_set_operand(copy, i, (Value){mapped});
  }
  for (int i = 0; i < op_n_results(op); i++)
    ptrmap_put(b->ir->arena, values, op_result(op, i).ptr, (void *)(uintptr_t)op_result(copy, i).ptr);
  builder_insert(b, copy);
  return copy;
}

/* --- sameness ------------------------------------------------------------------------------------------ */

static uint64_t mix(uint64_t h, const void *p) { return (h ^ (uintptr_t)p) * 0x9E3779B97F4A7C15u ^ (h >> 29); }

static bool either_order(Op op, OpId id) {
  return id != OP_NONE && op_n_operands(op) == 2 && (op_traits(id) & TRAIT_COMMUTATIVE);
}

uint64_t op_hash(Op op) {
  OpId id = op_id(op);
  uint64_t h = (uint64_t)id + 1;
  if (either_order(op, id)) {
    h = mix(h, (void *)((uintptr_t)op_operand(op, 0).ptr + (uintptr_t)op_operand(op, 1).ptr));
  } else {
    for (int i = 0; i < op_n_operands(op); i++) h = mix(h, op_operand(op, i).ptr);
  }
  for (int i = 0; i < op_n_results(op); i++) h = mix(h, value_type(op_result(op, i)).ptr);
  for (int i = 0; id != OP_NONE && i < op_attr_count(id); i++)
    h = mix(h, op_attr(op, attr_table[op_table[id].first_attr + i].name).ptr);
  return h ^ (h >> 32);
}

static bool same_operands(Op a, Op b, OpId id) {
  int n = op_n_operands(a);
  bool same = n == op_n_operands(b);
  for (int i = 0; same && i < n; i++) same = value_equal(op_operand(a, i), op_operand(b, i));
  return same || (either_order(a, id) && either_order(b, id) && value_equal(op_operand(a, 0), op_operand(b, 1)) &&
                  value_equal(op_operand(a, 1), op_operand(b, 0)));
}

bool op_same(Op a, Op b) {
  OpId id = op_id(a);
  if (id == OP_NONE || id != op_id(b) || op_n_results(a) != op_n_results(b) || !same_operands(a, b, id)) return false;
  for (int i = 0; i < op_n_results(a); i++)
    if (!type_equal(value_type(op_result(a, i)), value_type(op_result(b, i)))) return false;
  for (int i = 0; i < op_attr_count(id); i++) {
    const char *name = attr_table[op_table[id].first_attr + i].name;
    if (op_attr(a, name).ptr != op_attr(b, name).ptr) return false;
  }
  return true;
}

/* --- place in the block ----------------------------------------------------------------------------------- */

Op op_parent(Op op) { return mlirOperationGetParentOperation(op); }
Block op_block(Op op) { return mlirOperationGetBlock(op); }
Op op_next(Op op) { return mlirOperationGetNextInBlock(op); }
void op_move_before(Op op, Op other) { mlirOperationMoveBefore(op, other); }

/* --- attributes ------------------------------------------------------------------------------------------ */

MlirAttribute op_attr(Op op, const char *name) { return mlirOperationGetAttributeByName(op, ref(name)); }
MlirNamedAttribute named_attr(MlirIdentifier name, MlirAttribute value) { return mlirNamedAttributeGet(name, value); }

MlirAttribute int_attr(Ir *ir, int64_t value) {
  return mlirIntegerAttrGet(mlirIntegerTypeGet(ir->ctx, 64), value);
}

MlirAttribute string_attr(Ir *ir, const char *value) { return mlirStringAttrGet(ir->ctx, ref(value)); }

static void set_attr(Op op, const char *name, MlirAttribute value) {
  mlirOperationSetAttributeByName(op, ref(name), value);
}

int64_t op_int(Op op, const char *name, int64_t otherwise) {
  MlirAttribute a = op_attr(op, name);
  if (mlirAttributeIsNull(a)) return otherwise;
  if (mlirAttributeIsAInteger(a)) return mlirIntegerAttrGetValueInt(a);
  bug("attribute '%s' is no integer", name);
}

double op_float(Op op, const char *name, double otherwise) {
  MlirAttribute a = op_attr(op, name);
  if (mlirAttributeIsNull(a)) return otherwise;
  if (mlirAttributeIsAFloat(a)) return mlirFloatAttrGetValueDouble(a);
  if (mlirAttributeIsAInteger(a)) return (double)mlirIntegerAttrGetValueInt(a);
  bug("attribute '%s' is no number", name);
}

bool op_unit(Op op, const char *name) { return !mlirAttributeIsNull(op_attr(op, name)); }

const char *op_string(Arena *arena, Op op, const char *name) {
  MlirAttribute a = op_attr(op, name);
  if (mlirAttributeIsNull(a)) return NULL;
  MlirStringRef s;
  if (mlirAttributeIsAString(a))
    s = mlirStringAttrGetValue(a);
  else if (mlirAttributeIsAFlatSymbolRef(a))
    s = mlirFlatSymbolRefAttrGetValue(a);
  else
    bug("attribute '%s' is no string", name);
  return arena_strndup(arena, s.length ? s.data : "", s.length);
}

const char *op_content(Arena *arena, Op op) {
  OpId id = op_id(op);
  return id == OP_LOSS_SCALE || id == OP_RESCALE ? "" : op_string(arena, op, "param");
}

const int64_t *op_ints(Arena *arena, Op op, const char *name, int64_t *out_n) {
  MlirAttribute a = op_attr(op, name);
  *out_n = 0;
  if (mlirAttributeIsNull(a)) return NULL;
  if (!mlirAttributeIsADenseI64Array(a)) bug("attribute '%s' is no array of integers", name);
  int64_t n = *out_n = mlirDenseArrayGetNumElements(a);
  int64_t *v = arena_alloc_array(arena, (size_t)n, sizeof *v);
  for (int64_t i = 0; i < n; i++) v[i] = mlirDenseI64ArrayGetElement(a, i);
  return v;
}

Type op_type_attr(Op op, const char *name) {
  MlirAttribute a = op_attr(op, name);
  return mlirAttributeIsNull(a) || !mlirAttributeIsAType(a) ? (Type){NULL} : mlirTypeAttrGetValue(a);
}

bool op_constant_is_float(Op constant) { return mlirAttributeIsAFloat(op_attr(constant, "value")); }

void op_set_int(Ir *ir, Op op, const char *name, int64_t v) { set_attr(op, name, int_attr(ir, v)); }
void op_set_float(Ir *ir, Op op, const char *name, double v) {
  set_attr(op, name, mlirFloatAttrDoubleGet(ir->ctx, ir->elements[PP_F64], v));
}
void op_set_unit(Ir *ir, Op op, const char *name) { set_attr(op, name, ir->unit); }
void op_set_string(Ir *ir, Op op, const char *name, const char *v) { set_attr(op, name, string_attr(ir, v)); }
void op_set_ints(Ir *ir, Op op, const char *name, int64_t n, const int64_t *v) {
  set_attr(op, name, mlirDenseI64ArrayGet(ir->ctx, n, v));
}

MlirAttribute lines_attr(Ir *ir, int64_t n, const Loc *lines) {
  Arena *tmp = arena_create();
  MlirAttribute *all = arena_alloc_array(tmp, (size_t)n, sizeof *all);
  for (int64_t i = 0; i < n; i++) all[i] = mlirLocationGetAttribute(ir_location(ir, lines[i]));
  MlirAttribute array = mlirArrayAttrGet(ir->ctx, n, all);
  arena_destroy(tmp);
  return array;
}

void op_set_lines(Ir *ir, Op op, const char *name, int64_t n, const Loc *lines) {
  set_attr(op, name, lines_attr(ir, n, lines));
}

const Loc *op_lines(Ir *ir, Arena *arena, Op op, const char *name, int64_t *out_n) {
  MlirAttribute a = op_attr(op, name);
  *out_n = 0;
  if (mlirAttributeIsNull(a)) return NULL;
  if (!mlirAttributeIsAArray(a)) bug("attribute '%s' is no array", name);
  int64_t n = *out_n = mlirArrayAttrGetNumElements(a);
  Loc *lines = arena_alloc_array(arena, (size_t)n, sizeof *lines);
  for (int64_t i = 0; i < n; i++)
    lines[i] = ir_loc(ir, mlirLocationFromAttribute(mlirArrayAttrGetElement(a, i)));
  return lines;
}

void op_remove_attr(Op op, const char *name) { mlirOperationRemoveAttributeByName(op, ref(name)); }

int op_stage(Op op) { return (int)op_int(op, "pp.stage", -1); }
void op_set_stage(Ir *ir, Op op, int stage) { op_set_int(ir, op, "pp.stage", stage); }
