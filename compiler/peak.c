/* In: the layout of each rank, and the bytes that a rank may map. Out: an error for each rank that needs
 * more, at the line of the schedule whose action is the fullest, with what takes most there: tensors by
 * their names in the source, frames taken apart into their fields, microbatches counted together. What
 * counts is what the emitted program maps: the arena and the window, gaps between items included. */
#include <stdlib.h>
#include <string.h>

#include "compiler/compiler.h"
#include "compiler/items.h"
#include "compiler/tasks.h"

enum { FEW_RANKS = 4, FEW_TENSORS = 5 };

/* Tensors of one name, place and size. */
typedef struct {
  const char *name;
  Loc loc;
  int64_t bytes, n;
} Held;

typedef struct {
  Ir *ir;
  Diag *diag;
  Arena *arena;
  const Tasks *t;
  const TaskRank *rank;
  VEC(Held) held; /* at the fullest instant of the rank */
} Peak;

/* --- what is there ------------------------------------------------------------------------------------- */

static void hold(Peak *p, const char *name, Loc loc, int64_t bytes) {
  VEC_PUSH(p->arena, &p->held, (Held){name, loc, bytes, 1});
}

/* "x (gpt2.pp:31)" without its place, which the note has already. */
static void hold_value(Peak *p, int value) {
  const TaskValue *v = &p->t->values[value];
  const char *end = strstr(v->name, " (");
  size_t length = end ? (size_t)(end - v->name) : strlen(v->name);
  hold(p, arena_strndup(p->arena, v->name, length), v->loc, v->bytes);
}

static void hold_frame(Peak *p, const TaskFrame *frame) {
  for (int i = 0; i < frame->fields.n; i++) hold_value(p, frame->fields.at[i].value);
}

static void hold_of_parameter(Peak *p, int64_t parameter, const char *of) {
  const TaskParameter *x = &p->t->parameters[parameter];
  hold(p, arena_printf(p->arena, "%s%s", of, x->name), op_loc(p->ir, x->op), x->bytes);
}

static const char *action_text(const Peak *p, int64_t action) {
  const int64_t *a = &p->rank->actions[3 * action];
  return tasks_action_text(p->arena, (pp_task_kind)a[0], (int)a[1], (int)a[2]);
}

/* Where a task begins in the model's own file, the first of all; in a library when it has nothing there. */
static Loc task_line(const Peak *p, const Task *task) {
  OpVec ops = block_ops(p->arena, func_body(task->func));
  for (int i = 0; i < ops.n; i++) {
    Loc loc = op_loc(p->ir, ops.at[i]);
    if (loc.line && loc.file == 0) return loc;
  }
  return op_loc(p->ir, task->func);
}

/* Its line of the schedule; without one (generation), that of its task. */
static Loc action_line(const Peak *p, int64_t action) {
  const int64_t *a = &p->rank->actions[3 * action];
  const Task *task = tasks_find(p->t, (int)a[1], (pp_task_kind)a[0]);
  Loc loc = p->rank->lines[action];
  return loc.line || !task ? loc : task_line(p, task);
}

/* Workspace has no tensor of the source: the place of its action says where it comes from. */
static void hold_workspace(Peak *p, int64_t action, int64_t bytes) {
  hold(p, arena_printf(p->arena, "workspace of %s", action_text(p, action)), action_line(p, action), bytes);
}

static void hold_item(Peak *p, const int64_t *item) {
  switch ((ItemKind)item[0]) {
  case ITEM_PARAMETER: hold_of_parameter(p, item[1], ""); break;
  case ITEM_GRADIENT: hold_of_parameter(p, item[1], "gradient of "); break;
  case ITEM_STATE: hold_of_parameter(p, item[1], arena_printf(p->arena, "%s of ", p->t->states[item[2]])); break;
  case ITEM_FRAME: hold_frame(p, &p->t->frames[item[1]]); break;
  case ITEM_WEIGHT_FRAME: hold_frame(p, &p->t->weight_frames[item[1]]); break;
  case ITEM_VALUE: hold_value(p, (int)item[1]); break;
  case ITEM_WORKSPACE: hold_workspace(p, item[1], item[5]); break;
  default: break; /* vectors of the runtime: a few numbers each */
  }
}

static int by_name(const void *px, const void *py) {
  const Held *x = px, *y = py;
  int order = strcmp(x->name, y->name);
  if (order) return order;
  if (x->loc.file != y->loc.file) return x->loc.file - y->loc.file;
  if (x->loc.line != y->loc.line) return x->loc.line - y->loc.line;
  if (x->loc.col != y->loc.col) return x->loc.col - y->loc.col;
  return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

static int by_total(const void *px, const void *py) {
  const Held *x = px, *y = py;
  int64_t a = x->n * x->bytes, b = y->n * y->bytes;
  if (a != b) return a > b ? -1 : 1;
  return by_name(px, py);
}

static void find_held(Peak *p, const int64_t *items) {
  int64_t n_peak = 0;
  const int64_t *peak = op_ints(p->arena, p->rank->op, "peak", &n_peak);
  p->held.n = 0;
  for (int64_t i = 0; i < n_peak; i++) hold_item(p, &items[ITEM_NUMBERS * peak[i]]);
  if (!p->held.n) return;
  qsort(p->held.at, (size_t)p->held.n, sizeof *p->held.at, by_name);
  int n = 1;
  for (int i = 1; i < p->held.n; i++) {
    if (by_name(&p->held.at[n - 1], &p->held.at[i]) == 0) p->held.at[n - 1].n++;
    else p->held.at[n++] = p->held.at[i];
  }
  p->held.n = n;
  qsort(p->held.at, (size_t)n, sizeof *p->held.at, by_total);
}

/* --- errors -------------------------------------------------------------------------------------------- */

static const char *grouped(Peak *p, int64_t bytes) {
  Str text = {0};
  str_put_grouped(&text, bytes, 0);
  const char *copy = arena_printf(p->arena, "%s", str_text(&text));
  str_free(&text);
  return copy;
}

static void note_held(Peak *p) {
  for (int i = 0; i < p->held.n && i < FEW_TENSORS; i++) {
    const Held *x = &p->held.at[i];
    const char *all = grouped(p, x->n * x->bytes);
    if (x->n == 1) diag_note(p->diag, x->loc, "%s bytes of it: %s", all, x->name);
    else diag_note(p->diag, x->loc, "%s bytes of it: %lld times %s, %s bytes each", all, (long long)x->n, x->name,
                   grouped(p, x->bytes));
  }
}

/* Arena, window and what lies behind them. */
static int64_t needed_bytes(const Peak *p, const int64_t *bytes) {
  if (p->t->target == PP_TARGET_CPU) return bytes[0] + bytes[1];
  return pp_cuda_bytes(bytes[0], bytes[1], tasks_streams(p->rank), p->t->scratch_bytes);
}

static void report_rank(Peak *p, const int64_t *bytes, int64_t limit) {
  int64_t n = 0, action = bytes[2 + PP_CLASS_COUNT];
  const int64_t *items = op_ints(p->arena, p->rank->op, "items", &n);
  const int64_t *live = op_ints(p->arena, p->rank->op, "live", &n);
  diag_error(p->diag, action_line(p, action),
             "rank %d needs %s bytes, --memory allows %s: it is fullest in %s, with %s bytes in use", p->rank->rank,
             grouped(p, needed_bytes(p, bytes)), grouped(p, limit), action_text(p, action), grouped(p, live[action]));
  if (p->t->scratch_bytes)
    diag_note(p->diag, action_line(p, action), "%s bytes of it: what products may use (--products-workspace), and partial sums take",
              grouped(p, p->t->scratch_bytes * tasks_streams(p->rank)));
  find_held(p, items);
  note_held(p);
}

bool memory_check_limit(Ir *ir, int64_t limit) {
  Peak p = {.ir = ir, .diag = ir_diag(ir), .arena = arena_create()};
  p.t = tasks_read(ir, p.arena);
  int n_over = 0;
  Loc last = {0};
  for (int r = 0; r < p.t->n_ranks; r++) {
    int64_t n = 0;
    p.rank = &p.t->ranks[r];
    const int64_t *bytes = op_ints(p.arena, p.rank->op, "bytes", &n);
    if (n != PP_CLASS_COUNT + 3) bug("rank %d has no layout", r);
    if (needed_bytes(&p, bytes) <= limit) continue;
    if (n_over++ < FEW_RANKS) report_rank(&p, bytes, limit);
    last = action_line(&p, bytes[2 + PP_CLASS_COUNT]);
  }
  if (n_over > FEW_RANKS)
    diag_note(p.diag, last, "%d more rank%s need%s too much", n_over - FEW_RANKS, n_over == FEW_RANKS + 1 ? "" : "s",
              n_over == FEW_RANKS + 1 ? "s" : "");
  arena_destroy(p.arena);
  return n_over == 0;
}
