/* Shared by the files that write a kernel's body: kernel_scope.c (scopes and their text), kernel_value.c
 * (values at symbolic indexes), kernel_loops.c (loops and reductions); for each target its own kernel_body.c
 * (nests of outputs), and a KernelForm that says what is written differently. */
#ifndef PPC_KERNEL_EMIT_H
#define PPC_KERNEL_EMIT_H

#include <string.h>

#include "codegen/kernel.h"
#include "compiler/base/diag.h"

typedef enum { CLASS_LEAF, CLASS_MAP, CLASS_REDUCE, CLASS_MOVE, CLASS_PRODUCT, CLASS_SPECIAL, CLASS_EFFECT, CLASS_STRUCT } OpClass;
typedef struct {
  const char *name;
  OpClass class;
} KernelOp;
extern const KernelOp kernel_ops[];

/* A value in C: a variable or a literal, and the depth of the scope from which it can be seen. */
typedef struct {
  const char *text;
  int depth;
} Val;

typedef struct {
  uint64_t hash;
  const char *key;
  Val val;
} Memo;

/* A value kept for a whole row: [extent] elements named `name`, filled by loop `loop`. */
typedef struct {
  int node, loop;
  Index base;
  int64_t coef, extent;
  const char *name;
  bool is_read;
} Buffer;

typedef struct Scope {
  struct Scope *parent;
  int depth, indent;
  bool is_condition;  /* nothing moves out of it: its loads hold under its condition only */
  Index condition;    /* what is compared there */
  bool is_else;       /* of another condition: nothing can be written before it any more */
  bool has_loops;     /* closed ones inside */
  bool diverges;      /* the threads that reduce together are in different turns here */
  const char *path;   /* what it is for: the same in both passes */
  Str text;
  VEC(Memo) memos;
  VEC(Buffer) buffers;
  VEC(const char *) results; /* of reductions */
  int loop;           /* logical loop: pieces of one loop have one number; -1: no loop */
  int atom;
  int64_t extent;     /* of the logical loop */
  bool has_points;    /* a piece of the logical loop is one value, so not every piece knows the variable */
} Scope;

typedef struct {
  int node, loop;
  Index base;
  int64_t coef, extent;
} Costly;

typedef struct {
  Index e;
  bool condition;     /* it is compared with `threshold`, not used as an address */
  int64_t threshold;
} Access;

typedef VEC(Access) Accesses;
typedef VEC(const char *) Texts;

typedef struct Emit Emit;

/* Axes merged into fewer loops: extents, outermost first. */
typedef struct {
  int n;
  int64_t extents[PP_MAX_RANK];
} Groups;

typedef struct {
  int value;            /* the REDUCE node */
  const char *name;     /* of the result */
  const char *key;
  const char *lanes;    /* the variable that takes the operands */
} Reduction;

/* What differs between targets. */
typedef struct {
  const char *index_type; /* of loop variables */
  const char *simd;       /* a line before loops whose turns are independent, "#pragma omp simd" */
  bool keeps_rows;        /* costly values that two loops over one row need are kept on the stack */
  bool joins_axes;        /* one loop for all reduced axes */
  /* Element `linear` of the RANDOM node v. */
  Val (*random)(Emit *e, int v, Index linear);
  /* May load in its own way, true then. `v`: the input. */
  bool (*load)(Emit *e, int v, Index linear, Val *out_val);
  /* May write the loop over n joined reductions into e->scope in its own way and declare the results, true then. */
  bool (*reduce)(Emit *e, int loop, int n, const Reduction *r, const Index *kept, const Groups *g);
} KernelForm;

struct Emit {
  Arena *arena;
  const KernelForm *form;
  void *own;                  /* the form's */
  const PlanKernel *k;
  const char *const *names;   /* parameters */
  IndexSpace space;
  Scope *scope;               /* innermost open one */
  Texts taken;                /* variable names */
  Accesses *record;           /* where a trial notes accesses; null: nowhere */
  bool final;                 /* last pass */
  const char *draft;          /* the body as the pass before it wrote it */
  int trials;                 /* nested trials that are running */
  VEC(Costly) costly;         /* of the first pass */
  bool *buffered;             /* nodes that get a row buffer */
  int64_t buffer_bytes;
  Texts demanded;             /* reductions of the second pass */
  int n_loops;
  VEC(int) finished;          /* loops whose last piece is closed */
  bool prefetch;              /* evaluate nothing but the reductions on the way */
  const char **random;        /* per node: name of the array that holds it */
  bool *random_output;        /* per output: filled in the prologue */
  int *depth_of_reductions;   /* per value: reductions on the longest path to it */
};

static inline bool is_input(const Emit *e, int v) { return v < e->k->n_inputs; }
static inline const PlanNode *node_of(const Emit *e, int v) { return &e->k->nodes[v - e->k->n_inputs]; }
static inline const PlanType *type_of(const Emit *e, int v) {
  return is_input(e, v) ? &e->k->inputs[v] : &node_of(e, v)->type;
}
/* --- kernel_scope.c: text goes into scopes, one for each open loop and condition -------------------- */

Scope *kernel_open_scope(Emit *e, bool is_condition);
void kernel_extend_path(Emit *e, char kind, int a, int64_t b);
void kernel_print_line(Scope *s, const char *line);
void kernel_line(Emit *e, Scope *s, const char *format, ...) __attribute__((format(printf, 3, 4)));
int kernel_count_mentions(const char *text, const char *name);
void kernel_print_unread(Emit *e, Scope *s);
bool kernel_is_finished(const Emit *e, int loop);
void kernel_finish_loop(Emit *e, int loop);
void kernel_close_scope(Emit *e, const char *pragma, const char *head, const char *first);
Scope *kernel_scope_at(Emit *e, int depth);
const Memo *kernel_find_memo(Emit *e, const char *key);
void kernel_remember(Emit *e, Scope *s, const char *key, Val val);
const char *kernel_fresh_name(Emit *e, const char *base);

/* A trial evaluates, notes the accesses in `record`, and forgets the text. */
typedef struct {
  size_t length;
  int n_memos, n_buffers, n_results;
} ScopeMark;

typedef struct {
  ScopeMark marks[128];
  int n_taken, n_loops;
  Accesses *record;
} Trial;
void kernel_trial_begin(Emit *e, Trial *t, Accesses *record);
void kernel_trial_end(Emit *e, Trial *t);
void kernel_note_access(Emit *e, Index index);

/* --- kernel_value.c: values at symbolic indexes ----------------------------------------------------- */

/* A constant variable of this type and value, in scope `s`, or in the scope at `depth`; equal texts share one. */
Val kernel_define_in(Emit *e, Scope *s, const char *type, const char *base, const char *text);
Val kernel_define(Emit *e, int depth, const char *type, const char *base, const char *text);
/* Gives quotients and remainders that are used again, or make lines long, variables of their own. context: an Emit. */
IndexNamer kernel_name_quotient;
const char *kernel_index_key(Emit *e, int v, int rank, const Index *index);
const char *kernel_base_name(Emit *e, int v);
void kernel_choose_buffers(Emit *e);
Val kernel_evaluate(Emit *e, int v, const Index *index);
void kernel_prefetch(Emit *e, int v, const Index *index);

/* --- kernel_loops.c: loops, and reductions, which are loops of their own ------------------------------ */

enum { MAX_JOINED = 8 }; /* reductions, or column sums, in one loop */
const char *kernel_loop_name(Emit *e, int depth);
Scope *kernel_open_loop(Emit *e, int loop, int64_t low, int64_t high, int64_t extent);
void kernel_close_loop(Emit *e, bool simd);
Groups kernel_merge_axes(Emit *e, int n, const int *atoms, const int64_t *extents, const Accesses *accesses);
bool kernel_is_reduced(const PlanNode *n, int axis);
bool kernel_is_max(const PlanNode *n);
const char *kernel_least(pp_dtype d);
const char *kernel_combine_text(Emit *e, const PlanNode *n, const char *a, const char *b);
void kernel_operand_index(const Emit *e, const PlanNode *n, const Index *kept, const Index *reduced, Index *out);
int kernel_reduced_dims(const Emit *e, const PlanNode *n, int64_t *dims);
/* Values of reductions that are joined at one element: lane[i] of each (null: `lanes` itself) takes its operand. */
void kernel_accumulate(Emit *e, int n, const Reduction *r, const Index *kept, const Groups *g, const Index *group_index, const char *lane);
/* The reductions of each value on its longest path, in e->depth_of_reductions. */
void kernel_count_reductions(Emit *e);
bool kernel_same_space(const Emit *e, int a, int b);
Val kernel_reduce(Emit *e, int v, const Index *index, const char *key);

#endif
