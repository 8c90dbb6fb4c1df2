/* In: ops.def. Out: the rows of the op table and of the attribute table, and op_id, which finds an
 * op's row by its name through a hash. The hash is filled once, from the table alone, and never
 * changes afterwards, so it belongs to no Ir. */
#include <string.h>

#include "compiler/ir/internal.h"

/* Rows of attr_table are numbered by a chain of enumerators: each ATTR takes the next number, and an
 * OP takes none (BEFORE_x steps back by one). */
#define JOIN2(a, b) a##b
#define JOIN(a, b) JOIN2(a, b)
enum {
#define OP(id, ...) FIRST_ATTR_##id, BEFORE_##id = FIRST_ATTR_##id - 1,
#define ATTR(id, ...) JOIN(ATTR_ROW_, __LINE__),
#include "compiler/ir/ops.def"
  ATTR_ROWS
};

const AttrDef attr_table[] = {
#define OP(...)
#define ATTR(id, name, kind, required) {name, KIND_##kind, required},
#include "compiler/ir/ops.def"
};
const int attr_table_count = ATTR_ROWS;
_Static_assert(sizeof attr_table / sizeof *attr_table == ATTR_ROWS, "one row for each ATTR");

enum { PURE = TRAIT_PURE, COMMUTATIVE = TRAIT_COMMUTATIVE, FREE = TRAIT_FREE };
#define infer_given NULL
#define verify_none NULL

const OpDef op_table[OP_COUNT] = {
#define OP(id, name, class, traits, min_in, max_in, min_out, max_out, infer, verify, adjoint)                    \
  [OP_##id] = {name,    "pp." name, CLASS_##class, traits,          min_in,         max_in, \
               min_out, max_out,    infer_##infer, verify_##verify, FIRST_ATTR_##id},
#include "compiler/ir/ops.def"
};

/* Where the attributes of an op end: at the first of the next. */
static const int attr_ends[OP_COUNT + 1] = {
#define OP(id, ...) FIRST_ATTR_##id,
#include "compiler/ir/ops.def"
    ATTR_ROWS};

int op_attr_count(OpId id) { return attr_ends[id + 1] - attr_ends[id]; }

const char *op_name(OpId id) { return id < OP_COUNT ? op_table[id].name : "?"; }
OpClass op_class(OpId id) { return id < OP_COUNT ? op_table[id].op_class : CLASS_STRUCT; }
unsigned op_traits(OpId id) { return id < OP_COUNT ? op_table[id].traits : 0; }

/* --- name → row -------------------------------------------------------------------------------- */

enum { SLOTS = 512 };
_Static_assert(OP_COUNT * 2 < SLOTS, "the hash of op names wants free slots");
static unsigned char slots[SLOTS]; /* row + 1, 0: free */
_Static_assert(OP_COUNT < 255, "a row fits a byte");

/* Mixes the first and the last eight bytes and the length; names shorter than eight are padded. */
static unsigned hash(const char *name, size_t n) {
  uint64_t head = 0, tail = 0;
  size_t k = n < 8 ? n : 8;
  memcpy(&head, name, k);
  memcpy(&tail, name + n - k, k);
  uint64_t h = (head ^ (tail * 0x9E3779B97F4A7C15u) ^ n) * 0xD6E8FEB86659FD93u;
  return (unsigned)(h >> 40) & (SLOTS - 1);
}

void table_prepare(void) {
  if (slots[hash(op_table[0].name, strlen(op_table[0].name))]) return;
  for (int i = 0; i < OP_COUNT; i++) {
    unsigned s = hash(op_table[i].name, strlen(op_table[i].name));
    while (slots[s]) s = (s + 1) & (SLOTS - 1);
    slots[s] = (unsigned char)(i + 1);
  }
}

OpId op_id(Op op) {
  MlirStringRef full = mlirIdentifierStr(mlirOperationGetName(op));
  if (full.length < 4 || memcmp(full.data, "pp.", 3)) return OP_NONE;
  const char *name = full.data + 3;
  size_t n = full.length - 3;
  for (unsigned s = hash(name, n); slots[s]; s = (s + 1) & (SLOTS - 1)) {
    const char *candidate = op_table[slots[s] - 1].name;
    if (strlen(candidate) == n && !memcmp(candidate, name, n))
      return (OpId)(slots[s] - 1);
  }
  return OP_NONE;
}
