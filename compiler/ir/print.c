/* The IR as MLIR text, and the pp dialect as IRDL text: what `mlir-opt-19 --irdl-file=` reads. */
#include "compiler/ir/internal.h"

static void write_text(MlirStringRef text, void *out) { fwrite(text.data, 1, text.length, out); }

void ir_print(FILE *out, Ir *ir, Op op, bool locations) {
  (void)ir;
  MlirOpPrintingFlags flags = mlirOpPrintingFlagsCreate();
  if (locations) mlirOpPrintingFlagsEnableDebugInfo(flags, true, false);
  mlirOpPrintingFlagsAssumeVerified(flags);
  mlirOperationPrintWithFlags(op, flags, write_text, out);
  mlirOpPrintingFlagsDestroy(flags);
  fputc('\n', out);
}

/* --- IRDL ------------------------------------------------------------------------------------------ */

static const char *const bases[KIND_COUNT] = {
    [KIND_INT] = "#builtin.integer",   [KIND_FLOAT] = "#builtin.float",  [KIND_STRING] = "#builtin.string",
    [KIND_UNIT] = "#builtin.unit",     [KIND_INTS] = "#builtin.dense_array", [KIND_SYMBOL] = "#builtin.symbol_ref",
    [KIND_TYPE] = "#builtin.type",     [KIND_ARRAY] = "#builtin.array"};

/* One constraint value for each slot: IRDL wants slots that share one to be equal, and so the values of
 * a variadic slot. So an op with any number of operands has many slots (see op_set_segments); another
 * has at most one that is optional among its operands, and one among its results. */
static void print_slots(FILE *out, const char *what, char letter, int min, int max) {
  int n = max < 0 ? VARIADIC_SLOTS : max;
  if (!n) return;
  for (int i = 0; i < n; i++) fprintf(out, "    %%%c%d = irdl.base \"!builtin.tensor\"\n", letter, i);
  fprintf(out, "    irdl.%s(", what);
  for (int i = 0; i < n; i++) {
    const char *how = max < 0 ? "variadic " : i < min ? "" : "optional ";
    fprintf(out, "%s%s%%%c%d", i ? ", " : "", how, letter, i);
  }
  fputs(")\n", out);
}

static void print_constraint(FILE *out, int i, AttrKind kind) {
  if (kind == KIND_FLOAT_OR_INT) {
    fprintf(out, "    %%f%d = irdl.base \"#builtin.float\"\n    %%n%d = irdl.base \"#builtin.integer\"\n", i, i);
    fprintf(out, "    %%a%d = irdl.any_of(%%f%d, %%n%d)\n", i, i, i);
  } else {
    fprintf(out, "    %%a%d = irdl.base \"%s\"\n", i, bases[kind]);
  }
}

/* IRDL attributes are always required, so the optional ones stay out. */
static void print_attributes(FILE *out, OpId id) {
  const AttrDef *own = attr_table + op_table[id].first_attr;
  int n = 0;
  for (int i = 0; i < op_attr_count(id); i++)
    if (own[i].required) print_constraint(out, i, own[i].kind);
  for (int i = 0; i < op_attr_count(id); i++)
    if (own[i].required) fprintf(out, "%s\"%s\" = %%a%d", n++ ? ", " : "    irdl.attributes {", own[i].name, i);
  if (n) fputs("}\n", out);
}

void ir_print_irdl(FILE *out) {
  fputs("irdl.dialect @pp {\n", out);
  for (int i = 0; i < OP_COUNT; i++) {
    fprintf(out, "  irdl.operation @%s {\n", op_table[i].name);
    print_slots(out, "operands", 'i', op_table[i].min_in, op_table[i].max_in);
    print_slots(out, "results", 'o', op_table[i].min_out, op_table[i].max_out);
    print_attributes(out, (OpId)i);
    fputs("  }\n", out);
  }
  fputs("}\n", out);
}
