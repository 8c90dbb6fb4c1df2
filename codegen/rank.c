/* The program of one rank as constant tables. In: the plan and one of its ranks. Out: rank_R.c: tasks,
 * actions (a row each, with what it waits for, what it hands on and its line of the schedule), transfer
 * operations, transfers, offsets, parameters, data, memory map, pp_program and main. Only what this rank
 * touches is listed; equal rows of offsets are shared. The runtime walks the tables in order. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/target.h"
#include "compiler/base/diag.h"
#include "compiler/base/map.h"

enum { NAMED_TRANSFERS = 4 }; /* in an action's comment */

typedef struct {
  Arena *arena;
  const Plan *plan;
  const PlanRank *rank;
  const EmitTarget *target;
  Str *out;
  int *local_task;      /* [n_tasks] of the plan → index here, -1: not of this rank */
  int *local_transfer;  /* [n_transfers] likewise */
  int *local_value;     /* [n_values] likewise */
  int n_tasks, n_transfers, n_values, n_ops, n_offsets, n_lines;
  uint32_t *args;       /* [n_actions] */
  uint32_t *lines;      /* [n_actions] */
  Map line_numbers;     /* line → index + 1 */
  EmitLives always, lives;
} Rank;

/* --- numbering ------------------------------------------------------------------------------------ */

static int *unset(Arena *arena, int n) {
  int *at = arena_alloc_array(arena, (size_t)n, sizeof *at);
  for (int i = 0; i < n; i++) at[i] = -1;
  return at;
}

static void number_tasks(Rank *r) {
  r->local_task = unset(r->arena, r->plan->n_tasks);
  for (int i = 0; i < r->plan->n_tasks; i++)
    if (r->plan->stages[r->plan->tasks[i].stage].rank == r->rank->rank) r->local_task[i] = r->n_tasks++;
}

static void number_transfers(Rank *r) {
  r->local_transfer = unset(r->arena, r->plan->n_transfers);
  r->local_value = unset(r->arena, r->plan->n_values);
  for (int i = 0; i < r->plan->n_transfers; i++) {
    const PlanTransfer *t = &r->plan->transfers[i];
    if (t->from != r->rank->rank && t->to != r->rank->rank) continue;
    r->local_transfer[i] = r->n_transfers++;
    if (r->local_value[t->value] < 0) r->local_value[t->value] = r->n_values++;
  }
}

static void number_lines(Rank *r) {
  r->lines = arena_alloc_array(r->arena, (size_t)r->rank->n_actions, sizeof *r->lines);
  for (int i = 0; i < r->rank->n_actions; i++) {
    const char *line = r->rank->actions[i].line ? r->rank->actions[i].line : "";
    if (!map_find(&r->line_numbers, line)) map_put(r->arena, &r->line_numbers, line, NULL);
    r->lines[i] = (uint32_t)(map_find(&r->line_numbers, line) - r->line_numbers.entries);
  }
  r->n_lines = r->line_numbers.n;
}

/* --- small parts ------------------------------------------------------------------------------------- */

static const PlanTask *task_of(const Rank *r, const PlanAction *a) { return &r->plan->tasks[a->task]; }

/* The value's name without its place: "h.0: x (gpt2.pp:12)" gives "h.0: x". */
static void emit_value_name(Rank *r, int value) {
  const char *name = r->plan->values[value], *place = strstr(name, " (");
  emit_comment(r->out, place ? arena_strndup(r->arena, name, (size_t)(place - name)) : name);
}

static void emit_index_comment(Rank *r, int i) { str_printf(r->out, " /* %d */\n", i); }

static void start_table(Rank *r, const char *comment, const char *declaration) {
  str_printf(r->out, "\n/* %s */\nstatic const %s[] = {\n", comment, declaration);
}

static void end_table(Rank *r) { str_puts(r->out, "};\n"); }

static void emit_address(Rank *r, uint64_t offset) {
  if (offset == UINT64_MAX) str_puts(r->out, "UINT64_MAX");
  else if (offset & EMIT_IN_WINDOW) str_printf(r->out, "W + %llu", (unsigned long long)(offset & ~EMIT_IN_WINDOW));
  else str_printf(r->out, "%llu", (unsigned long long)offset);
}

/* --- tasks and offsets ---------------------------------------------------------------------------------- */

static void emit_tasks(Rank *r) {
  str_puts(r->out, "\n/* Numbers of the tasks. */\nenum {");
  const char *separator = " ";
  for (int i = 0; i < r->plan->n_tasks; i++) {
    if (r->local_task[i] < 0) continue;
    int column = emit_column(r->out) + (int)strlen(r->plan->tasks[i].name) + 4;
    str_puts(r->out, column > EMIT_COLUMNS ? ",\n       " : separator);
    for (const char *p = r->plan->tasks[i].name; *p; p++)
      str_putc(r->out, *p >= 'a' && *p <= 'z' ? (char)(*p - 'a' + 'A') : *p);
    separator = ", ";
  }
  str_puts(r->out, " };\n");
  start_table(r, "name, function, kind, stage, number of arguments", "pp_task tasks");
  for (int i = 0; i < r->plan->n_tasks; i++) {
    const PlanTask *t = &r->plan->tasks[i];
    if (r->local_task[i] < 0) continue;
    str_printf(r->out, "  {\"%s\", %s, %s, %d, %d},\n", t->name, t->name, emit_kind(t->kind), t->stage, t->n_arguments);
  }
  end_table(r);
}

static void emit_argument_names(Rank *r, const PlanTask *task) {
  str_printf(r->out, "  /* %s:", task->name);
  for (int k = 0; k < task->n_arguments; k++) {
    int column = emit_column(r->out) + (int)strlen(task->arguments[k].name) + 5;
    str_puts(r->out, column > EMIT_COLUMNS ? "\n   * " : " ");
    emit_comment(r->out, task->arguments[k].name);
    if (k + 1 < task->n_arguments) str_putc(r->out, ',');
  }
  str_puts(r->out, " */\n");
}

static const char *row_of_offsets(Rank *r, const PlanAction *a) {
  Str row = {0}, *out = r->out;
  r->out = &row;
  for (int k = 0; k < task_of(r, a)->n_arguments; k++) {
    Str one = {0};
    r->out = &one;
    emit_address(r, a->offsets[k]);
    r->out = &row;
    bool breaks = k && emit_column(&row) + (int)one.length + 4 > EMIT_COLUMNS;
    str_puts(&row, breaks ? "\n  " : k ? " " : "  ");
    str_puts(&row, str_text(&one));
    str_putc(&row, ',');
    str_free(&one);
  }
  r->out = out;
  const char *text = arena_strndup(r->arena, str_text(&row), row.length);
  str_free(&row);
  return text;
}

/* One row for each distinct set of places that a task is called with. */
static void emit_task_offsets(Rank *r, int task) {
  Map rows = {0};
  for (int i = 0; i < r->rank->n_actions; i++) {
    const PlanAction *a = &r->rank->actions[i];
    if (a->task != task) continue;
    const char *row = row_of_offsets(r, a);
    uint32_t *known = map_get(&rows, row);
    if (!known) {
      known = arena_alloc(r->arena, sizeof *known);
      *known = (uint32_t)r->n_offsets;
      map_put(r->arena, &rows, row, known);
      str_printf(r->out, "  /* %d", r->n_offsets);
      if (a->microbatch >= 0) str_printf(r->out, ": microbatch %d", a->microbatch);
      str_printf(r->out, " */\n%s\n", row);
      r->n_offsets += task_of(r, a)->n_arguments;
    }
    r->args[i] = *known;
  }
}

static void emit_offsets(Rank *r) {
  r->args = arena_alloc_array(r->arena, (size_t)r->rank->n_actions, sizeof *r->args);
  bool any = false;
  for (int i = 0; i < r->plan->n_tasks; i++) any |= r->local_task[i] >= 0 && r->plan->tasks[i].n_arguments > 0;
  if (!any) return;
  start_table(r, "Places of the arguments, bytes from the start of the arena, or W + bytes in the window.\n"
                 " * Microbatches whose memory is the same share a row; it is named after the first", "uint64_t offsets");
  for (int i = 0; i < r->plan->n_tasks; i++) {
    if (r->local_task[i] < 0 || r->plan->tasks[i].n_arguments == 0) continue;
    emit_argument_names(r, &r->plan->tasks[i]);
    emit_task_offsets(r, i);
  }
  end_table(r);
}

/* --- transfers and operations -------------------------------------------------------------------------- */

static void emit_transfer(Rank *r, int id) {
  const PlanTransfer *t = &r->plan->transfers[id];
  bool sends = t->from == r->rank->rank;
  uint64_t offset = (sends ? t->send_offset : t->receive_offset) & ~EMIT_IN_WINDOW;
  str_printf(r->out, "  {%d, %d, %d, %d, %lld, %llu, %llu, %d, %s},", id, sends ? t->to : t->from, t->microbatch,
             r->local_value[t->value], (long long)t->size_bytes, (unsigned long long)offset,
             (unsigned long long)(sends ? 0 : t->send_offset & ~EMIT_IN_WINDOW), sends,
             emit_space(sends ? PP_WINDOW : t->receive_space));
  emit_to_column(r->out, 56);
  str_printf(r->out, "/* %d: ", r->local_transfer[id]);
  emit_value_name(r, t->value);
  if (t->microbatch >= 0) str_printf(r->out, ", microbatch %d,", t->microbatch);
  str_printf(r->out, " %s rank %d */\n", sends ? "to" : "from", sends ? t->to : t->from);
}

static void emit_transfers(Rank *r) {
  if (r->n_transfers == 0) return;
  const char *comment = arena_printf(r->arena, "number in the job, peer, microbatch, value, bytes, place here,\n * %s, sends, space", r->target->source);
  start_table(r, comment, "pp_transfer transfers");
  for (int i = 0; i < r->plan->n_transfers; i++)
    if (r->local_transfer[i] >= 0) emit_transfer(r, i);
  end_table(r);
}

/* Why a device with streams need not wait here. */
static void emit_implied(Rank *r, const PlanTransferOp *op) {
  bool is_post = op->op == PP_POST_SEND || op->op == PP_POST_RECEIVE;
  if (op->implied_by < 0) {
    str_printf(r->out, "; implied by the step's %s", is_post ? "begin" : "end");
    return;
  }
  const PlanTransfer *t = &r->plan->transfers[op->implied_by];
  str_printf(r->out, "; implied by the %s of ", t->from == r->rank->rank ? "send" : "receive");
  emit_value_name(r, t->value);
  if (t->microbatch >= 0) str_printf(r->out, ", microbatch %d", t->microbatch);
}

static void emit_ops_of(Rank *r, int n, const PlanTransferOp *ops, const char *when, int action) {
  static const char *const names[] = {"PP_POST_RECEIVE", "PP_POST_SEND", "PP_AWAIT_RECEIVE", "PP_AWAIT_SEND"};
  for (int i = 0; i < n; i++) {
    const PlanTransfer *t = &r->plan->transfers[ops[i].transfer];
    str_printf(r->out, "  {%s, %d, %d},", names[ops[i].op], r->local_transfer[ops[i].transfer], ops[i].waits);
    emit_to_column(r->out, 32);
    str_printf(r->out, "/* %s %d: ", when, action);
    emit_value_name(r, t->value);
    if (t->microbatch >= 0) str_printf(r->out, ", microbatch %d", t->microbatch);
    if (!ops[i].waits) emit_implied(r, &ops[i]);
    str_puts(r->out, " */\n");
    r->n_ops++;
  }
}

static void emit_ops(Rank *r) {
  bool any = false;
  for (int i = 0; i < r->rank->n_actions; i++) any |= r->rank->actions[i].n_before + r->rank->actions[i].n_after > 0;
  if (!any) return;
  start_table(r, "What is issued before and after the actions: operation, transfer, which compute streams wait or are\n"
                 " * waited for (0: others imply it)", "pp_op ops");
  for (int i = 0; i < r->rank->n_actions; i++) {
    const PlanAction *a = &r->rank->actions[i];
    emit_ops_of(r, a->n_before, a->before, "before", i);
    emit_ops_of(r, a->n_after, a->after, "after", i);
  }
  end_table(r);
}

/* --- actions ----------------------------------------------------------------------------------------- */

typedef struct {
  pp_transfer_op op;
  const char *verb, *preposition; /* "waits for x from rank 1"; null: the peer is not named */
  bool says_microbatch;           /* it may be another one than the action's */
} Clause;

static const Clause clauses[] = {
    {PP_AWAIT_RECEIVE, "waits for", "from", false},
    {PP_POST_SEND, "sends", "to", false},
    {PP_AWAIT_SEND, "reuses", NULL, true},
};

static void emit_clause(Rank *r, const Clause *c, int microbatch, int n, const PlanTransferOp *ops) {
  int named = 0, more = 0;
  for (int i = 0; i < n; i++) {
    const PlanTransfer *t = &r->plan->transfers[ops[i].transfer];
    if (ops[i].op != c->op) continue;
    if (named == NAMED_TRANSFERS) {
      more++;
      continue;
    }
    str_puts(r->out, named ? ", " : "; ");
    if (!named++) str_printf(r->out, "%s ", c->verb);
    emit_value_name(r, t->value);
    if (t->microbatch >= 0 && (c->says_microbatch || t->microbatch != microbatch)) str_printf(r->out, "(%d)", t->microbatch);
    if (c->preposition) str_printf(r->out, " %s rank %d", c->preposition, t->from == r->rank->rank ? t->to : t->from);
  }
  if (more) str_printf(r->out, " and %d more", more);
}

static void emit_action_comment(Rank *r, int i) {
  const PlanAction *a = &r->rank->actions[i];
  const PlanTask *task = task_of(r, a);
  Str text = {0}, *out = r->out;
  r->out = &text;
  str_printf(r->out, "%d: %s(%d", i, pp_task_kind_name(task->kind), task->stage);
  if (a->microbatch >= 0) str_printf(r->out, ", %d", a->microbatch);
  str_puts(r->out, ")");
  if (a->line) str_printf(r->out, ", %s", a->line);
  for (size_t k = 0; k < sizeof clauses / sizeof *clauses; k++) {
    emit_clause(r, &clauses[k], a->microbatch, a->n_before, a->before);
    emit_clause(r, &clauses[k], a->microbatch, a->n_after, a->after);
  }
  r->out = out;
  emit_wrapped_comment(out, str_text(&text));
  str_putc(out, '\n');
  str_free(&text);
}

static const char *streams_text(int streams) {
  static const char *const texts[] = {"0", "PP_ON_SECOND", "PP_FORK", "PP_FORK | PP_ON_SECOND", "PP_JOIN", "PP_JOIN | PP_ON_SECOND"};
  if (streams < 0 || streams >= (int)(sizeof texts / sizeof *texts)) bug("streams of an action: %d", streams);
  return texts[streams];
}

static void emit_actions(Rank *r) {
  if (r->rank->n_actions == 0) return;
  size_t width = 0;
  for (int i = 0; i < r->plan->n_tasks; i++)
    if (r->local_task[i] >= 0 && strlen(r->plan->tasks[i].name) > width) width = strlen(r->plan->tasks[i].name);
  start_table(r, "task, microbatch, first of the step, its row in offsets, operations before and after it, line, streams.\n"
                 " * bwd(2, 0): of stage 2 and microbatch 0, as in the schedule. \"reuses x(3)\": the receiver has x of\n"
                 " * microbatch 3, so that its bytes may be overwritten. Receives are posted in `ops`.", "pp_action actions");
  for (int i = 0; i < r->rank->n_actions; i++) {
    const PlanAction *a = &r->rank->actions[i];
    str_puts(r->out, "  ");
    emit_action_comment(r, i);
    str_puts(r->out, "  {");
    for (const char *p = task_of(r, a)->name; *p; p++)
      str_putc(r->out, *p >= 'a' && *p <= 'z' ? (char)(*p - 'a' + 'A') : *p);
    str_putc(r->out, ',');
    emit_to_column(r->out, (int)width + 5);
    str_printf(r->out, "%2d, %d, %3u, %d, %d, %u, %s},", a->microbatch, a->first, r->args[i], a->n_before, a->n_after, r->lines[i],
               streams_text(a->streams));
    str_putc(r->out, '\n');
  }
  end_table(r);
}

static void emit_names(Rank *r) {
  if (r->n_lines) {
    start_table(r, "Lines of the schedule", "char *const lines");
    for (int i = 0; i < r->n_lines; i++) {
      str_puts(r->out, "  ");
      emit_string(r->out, r->line_numbers.entries[i].key);
      str_putc(r->out, ',');
      emit_index_comment(r, i);
    }
    end_table(r);
  }
  if (r->n_values == 0) return;
  const char **values = arena_alloc_array(r->arena, (size_t)r->n_values, sizeof *values);
  for (int i = 0; i < r->plan->n_values; i++)
    if (r->local_value[i] >= 0) values[r->local_value[i]] = r->plan->values[i];
  start_table(r, "Names of the values that come or go", "char *const values");
  for (int i = 0; i < r->n_values; i++) {
    str_puts(r->out, "  ");
    emit_string(r->out, values[i]);
    str_putc(r->out, ',');
    emit_index_comment(r, i);
  }
  end_table(r);
}

/* --- parameters, data, outputs --------------------------------------------------------------------------- */

static const char *init_name(pp_init_kind init) {
  static const char *const names[] = {"PP_INIT_ZEROS", "PP_INIT_ONES", "PP_INIT_NORMAL", "PP_INIT_UNIFORM"};
  _Static_assert(sizeof names / sizeof *names == PP_INIT_KIND_COUNT, "one name per kind");
  return names[init];
}

static void emit_parameters(Rank *r) {
  if (r->plan->n_parameters == 0) return;
  start_table(r, "name, dtype, axes, shape, first value, its a and b, owner, stage of the owner, trainable", "pp_parameter parameters");
  for (int i = 0; i < r->plan->n_parameters; i++) {
    const PlanParameter *p = &r->plan->parameters[i];
    char a[32], b[32];
    str_format_double(p->a, a);
    str_format_double(p->b, b);
    str_puts(r->out, "  {");
    emit_string(r->out, p->name);
    str_printf(r->out, ", %s, %d, {", emit_dtype(p->type.dtype), p->type.rank);
    for (int d = 0; d < p->type.rank; d++) str_printf(r->out, "%s%lld", d ? ", " : "", (long long)p->type.dims[d]);
    if (p->type.rank == 0) str_putc(r->out, '0');
    str_printf(r->out, "}, %s, %s, %s, %d, %d, %d},", init_name(p->init), a, b, p->owner_rank, p->owner_stage, p->trainable);
    emit_index_comment(r, i);
  }
  end_table(r);
}

static void emit_held(Rank *r) {
  if (r->rank->n_held == 0) return;
  start_table(r, "What of them lies here: parameter, value, space, owned, gradient, space, optimizer state", "pp_held held");
  for (int i = 0; i < r->rank->n_held; i++) {
    const PlanHeld *h = &r->rank->held[i];
    str_printf(r->out, "  {%d, ", h->parameter);
    emit_address(r, h->value & ~(h->value == UINT64_MAX ? 0 : EMIT_IN_WINDOW));
    str_printf(r->out, ", %s, %d, ", emit_space(h->value_space), h->owned);
    emit_address(r, h->gradient & ~(h->gradient == UINT64_MAX ? 0 : EMIT_IN_WINDOW));
    str_printf(r->out, ", %s, {", emit_space(h->gradient_space));
    for (int s = 0; s < r->plan->n_states || s == 0; s++) {
      str_puts(r->out, s ? ", " : "");
      emit_address(r, r->plan->n_states && h->owned ? h->states[s] : 0);
    }
    str_puts(r->out, "}},");
    emit_to_column(r->out, 56);
    str_puts(r->out, "/* ");
    emit_comment(r->out, r->plan->parameters[h->parameter].name);
    str_puts(r->out, " */\n");
  }
  end_table(r);
}

static bool *sources_used(Rank *r) {
  bool *used = arena_alloc_array(r->arena, (size_t)r->plan->n_sources, sizeof *used);
  for (int i = 0; i < r->plan->n_tasks; i++) {
    const PlanTask *t = &r->plan->tasks[i];
    for (int k = 0; r->local_task[i] >= 0 && k < t->n_statements; k++)
      if (t->statements[k].op == PLAN_OP_DATA && t->statements[k].n_in == 0) used[t->statements[k].index] = true;
  }
  return used;
}

static void emit_data(Rank *r) {
  static const char *const kinds[] = {"PP_DATA_BYTES",    "PP_DATA_TOKENS16",      "PP_DATA_F32_FILE",
                                      "PP_DATA_I32_FILE", "PP_DATA_SYNTHETIC_F32", "PP_DATA_SYNTHETIC_I32"};
  static const char *const orders[] = {"PP_ORDER_RANDOM", "PP_ORDER_SEQUENTIAL", "PP_ORDER_SHUFFLED"};
  _Static_assert(sizeof kinds / sizeof *kinds == PP_DATA_KIND_COUNT, "one name per kind");
  _Static_assert(sizeof orders / sizeof *orders == PP_ORDER_COUNT, "one name per order");
  if (r->plan->n_sources == 0) return;
  bool *used = sources_used(r);
  start_table(r, "name, kind, order, path, elements of a sample, values, used by this rank", "pp_data data");
  for (int i = 0; i < r->plan->n_sources; i++) {
    const PlanSource *s = &r->plan->sources[i];
    str_puts(r->out, "  {");
    emit_string(r->out, s->name);
    str_printf(r->out, ", %s, %s, ", kinds[s->kind], orders[s->order]);
    emit_string(r->out, s->path);
    str_printf(r->out, ", %lld, %lld, %d},\n", (long long)s->n, (long long)s->vocabulary, used[i]);
  }
  end_table(r);
}

static void emit_outputs(Rank *r) {
  static const char *const kinds[] = {"PP_REDUCE_SUM", "PP_REDUCE_MEAN", "PP_REDUCE_MAX", "PP_REDUCE_CONCAT"};
  if (r->plan->n_outputs == 0) return;
  start_table(r, "name, reduction, stage, rank, elements of a microbatch", "pp_output outputs");
  for (int i = 0; i < r->plan->n_outputs; i++) {
    const PlanOutput *o = &r->plan->outputs[i];
    str_puts(r->out, "  {");
    emit_string(r->out, o->name);
    str_printf(r->out, ", %s, %d, %d, %lld},\n", kinds[o->kind], o->stage, o->rank, (long long)o->n);
  }
  end_table(r);
  start_table(r, "Where their partial results lie on this rank", "uint64_t output_slots");
  str_puts(r->out, "  ");
  for (int i = 0; i < r->plan->n_outputs; i++) {
    emit_address(r, r->rank->output_slots ? r->rank->output_slots[i] : 0);
    str_puts(r->out, ", ");
  }
  str_puts(r->out, "\n");
  end_table(r);
}

static void emit_state_names(Rank *r) {
  if (r->plan->n_states == 0) return;
  str_puts(r->out, "\nstatic const char *const state_names[] = {");
  for (int i = 0; i < r->plan->n_states; i++) {
    str_puts(r->out, i ? ", " : "");
    emit_string(r->out, r->plan->states[i]);
  }
  str_puts(r->out, "};\n");
}

static void emit_sizes(Rank *r) {
  const Plan *plan = r->plan;
  str_puts(r->out, "\n/* Of all ranks: bytes of the window, bytes mapped (arena and window). */\n"
                   "static const uint64_t all_window_bytes[] = {");
  for (int i = 0; i < plan->n_ranks; i++)
    str_printf(r->out, "%s%llu", i ? ", " : "", (unsigned long long)plan->ranks[i].window_bytes);
  str_puts(r->out, "};\nstatic const uint64_t all_mapped_bytes[] = {");
  for (int i = 0; i < plan->n_ranks; i++)
    str_printf(r->out, "%s%llu", i ? ", " : "", (unsigned long long)(plan->ranks[i].arena_bytes + plan->ranks[i].window_bytes));
  str_puts(r->out, "};\n");
}

/* --- lifetimes --------------------------------------------------------------------------------------------- */

typedef struct {
  uint32_t point;
  bool starts;
  const EmitLife *life;
} Event;

static int by_point(const void *px, const void *py) {
  const Event *x = px, *y = py;
  if (x->point != y->point) return x->point < y->point ? -1 : 1;
  if (x->starts != y->starts) return x->starts ? 1 : -1;
  if (x->life == y->life) return 0;
  return x->life < y->life ? -1 : 1; /* one array, sorted by place */
}

static void emit_life(Rank *r, uint32_t point, bool starts, const EmitLife *life) {
  str_printf(r->out, "  {%u, %d, %s, %llu, %llu, ", point, starts, emit_space(life->space),
             (unsigned long long)life->offset, (unsigned long long)life->size_bytes);
  emit_string(r->out, life->name);
  str_puts(r->out, "},\n");
}

static void emit_lifetimes(Rank *r) {
  emit_lives(r->arena, r->plan, r->rank, &r->always, &r->lives);
  if (r->always.n + r->lives.n == 0) return;
  if (!r->target->names_lives) str_puts(r->out, "\n#ifdef PP_CHECK");
  if (r->always.n) {
    start_table(r, "Live in all steps: point, starts, space, offset, bytes, name", "pp_life always");
    for (int i = 0; i < r->always.n; i++) emit_life(r, 0, true, &r->always.at[i]);
    end_table(r);
  }
  if (r->lives.n) {
    Event *events = arena_alloc_array(r->arena, 2 * (size_t)r->lives.n, sizeof *events);
    for (int i = 0; i < r->lives.n; i++) {
      events[2 * i] = (Event){r->lives.at[i].point, true, &r->lives.at[i]};
      events[2 * i + 1] = (Event){r->lives.at[i].end, false, &r->lives.at[i]};
    }
    qsort(events, 2 * (size_t)r->lives.n, sizeof *events, by_point);
    start_table(r, "Starts and ends of lives, by point (runtime/pp.h says what a point is)", "pp_life lives");
    for (int i = 0; i < 2 * r->lives.n; i++) emit_life(r, events[i].point, events[i].starts, events[i].life);
    end_table(r);
  }
  if (!r->target->names_lives) str_puts(r->out, "#endif\n");
}

/* --- the whole ----------------------------------------------------------------------------------------------- */

static void emit_head(Rank *r) {
  const Plan *plan = r->plan;
  str_printf(r->out, "/* Rank %d of %d of ", r->rank->rank, plan->n_ranks);
  emit_comment(r->out, plan->model);
  str_puts(r->out, ", schedule ");
  emit_comment(r->out, plan->schedule);
  str_printf(r->out, ", %d microbatches of %d samples.\n * Emitted by ppc. `actions` is the rank's program of one step; "
                     "the loop in runtime/rank.c walks it.\n * Maps ", plan->n_microbatches, plan->microbatch);
  emit_grouped(r->out, r->rank->arena_bytes);
  str_puts(r->out, " bytes of arena and ");
  emit_grouped(r->out, r->rank->window_bytes);
  str_printf(r->out, " bytes of window, %s.\n */\n", r->target->window);
  str_printf(r->out, "#include <stddef.h>\n#include <stdint.h>\n\n%s", r->target->rank_includes);
  for (int s = 0; s < plan->n_stages; s++)
    if (plan->stages[s].rank == r->rank->rank) str_printf(r->out, "#include \"stage_%d.h\"\n", s);
  str_puts(r->out, "\n#define W (UINT64_C(1) << 63) /* in the window */\n");
}

static void emit_member(Rank *r, const char *table, const char *count, int n) {
  str_printf(r->out, "  .%s = %s, .%s = %d,\n", table, n ? table : "NULL", count, n);
}

static void emit_place(Rank *r, const char *name, uint64_t offset) {
  str_printf(r->out, "  .%s = ", name);
  emit_address(r, offset);
  str_puts(r->out, ",\n");
}

static void emit_scalars(Rank *r) {
  const Plan *plan = r->plan;
  str_printf(r->out, "  .abi_version = PP_ABI_VERSION,\n  .device = &pp_device_%s,\n  .model = ", r->target->name);
  emit_string(r->out, plan->model);
  str_puts(r->out, ",\n  .directory = ");
  emit_string(r->out, plan->directory);
  str_printf(r->out, ",\n  .plan_hash = UINT64_C(0x%016llx),\n", (unsigned long long)plan->hash);
  str_printf(r->out, "  .rank = %d, .n_ranks = %d, .n_stages = %d, .n_microbatches = %d, .microbatch = %d,\n",
             r->rank->rank, plan->n_ranks, plan->n_stages, plan->n_microbatches, plan->microbatch);
  str_printf(r->out, "  .steps = %lld, .seed = UINT64_C(%llu), .threads = %d,\n", (long long)plan->steps,
             (unsigned long long)plan->seed, plan->threads);
  str_printf(r->out, "  .nonfinite_skip = %d, .loss_rank = %d, .tokens_per_step = %lld,\n", plan->nonfinite_skip,
             plan->loss_rank, (long long)plan->tokens_per_step);
  str_printf(r->out, "  .arena_bytes = %llu, .window_bytes = %llu,\n", (unsigned long long)r->rank->arena_bytes,
             (unsigned long long)r->rank->window_bytes);
  str_printf(r->out, "  .all_window_bytes = all_window_bytes, .all_mapped_bytes = all_mapped_bytes,\n"
                     "  .n_transfers_job = %d,\n", plan->n_transfers);
}

static void emit_tables(Rank *r) {
  const Plan *plan = r->plan;
  emit_member(r, "tasks", "n_tasks", r->n_tasks);
  emit_member(r, "actions", "n_actions", r->rank->n_actions);
  emit_member(r, "offsets", "n_offsets", r->n_offsets);
  emit_member(r, "ops", "n_ops", r->n_ops);
  emit_member(r, "transfers", "n_transfers", r->n_transfers);
  str_printf(r->out, "  .lines = %s, .values = %s,\n", r->n_lines ? "lines" : "NULL", r->n_values ? "values" : "NULL");
  emit_member(r, "parameters", "n_parameters", plan->n_parameters);
  emit_member(r, "held", "n_held", r->rank->n_held);
  emit_member(r, "state_names", "n_states", plan->n_states);
  emit_member(r, "data", "n_data", plan->n_sources);
  emit_member(r, "outputs", "n_outputs", plan->n_outputs);
}

static void emit_places(Rank *r) {
  const Plan *plan = r->plan;
  emit_place(r, "losses", r->rank->losses);
  emit_place(r, "counts", r->rank->counts);
  emit_place(r, "norms", r->rank->norms);
  emit_place(r, "control", r->rank->control);
  emit_place(r, "step", r->rank->step);
  if (plan->first_loss_scale != 0 && r->rank->rank == plan->loss_rank) {
    emit_place(r, "loss_scale", r->rank->loss_scale);
    char first[32];
    str_format_double(plan->first_loss_scale, first);
    str_printf(r->out, "  .first_loss_scale = %s,\n", first);
  }
  if (plan->n_outputs) str_puts(r->out, "  .output_slots = output_slots,\n");
  str_printf(r->out, "  .generate = %d,\n", plan->generate);
  if (plan->generate) {
    emit_place(r, "prompt", plan->prompt);
    emit_place(r, "logits", plan->logits);
    str_printf(r->out, "  .length = %lld, .vocabulary = %lld,\n", (long long)plan->length, (long long)plan->vocabulary);
  }
  str_printf(r->out, "  .real = %s,\n", emit_dtype(plan->dtype));
}

static void emit_checks(Rank *r) {
  if (r->always.n + r->lives.n == 0) return;
  if (!r->target->names_lives) str_puts(r->out, "#ifdef PP_CHECK\n");
  emit_member(r, "always", "n_always", r->always.n);
  emit_member(r, "lives", "n_lives", 2 * r->lives.n); /* a start and an end each */
  if (!r->target->names_lives) str_puts(r->out, "#endif\n");
}

static void emit_main(Rank *r) {
  int k = r->rank->rank;
  str_printf(r->out, "\n#ifndef PP_THREADS /* else threads.c runs all ranks */\n"
                     "int main(int argc, char **argv) {\n"
                     "%s  return pp_main(&pp_rank_%d, argc, argv);\n}\n#endif\n", r->target->main_starts, k);
}

void emit_rank(Arena *arena, const Plan *plan, const PlanRank *rank, const EmitTarget *target, EmitFiles *files) {
  Str out = {0}, offsets = {0};
  Rank r = {.arena = arena, .plan = plan, .rank = rank, .target = target, .out = &out};
  number_tasks(&r);
  number_transfers(&r);
  number_lines(&r);
  emit_head(&r);
  emit_tasks(&r);
  r.out = &offsets; /* the actions need the rows' numbers, but the reader wants the actions first */
  emit_offsets(&r);
  r.out = &out;
  emit_actions(&r);
  emit_ops(&r);
  emit_transfers(&r);
  emit_names(&r);
  str_puts(&out, str_text(&offsets));
  str_free(&offsets);
  emit_parameters(&r);
  emit_held(&r);
  emit_state_names(&r);
  emit_data(&r);
  emit_outputs(&r);
  emit_sizes(&r);
  emit_lifetimes(&r);
  str_printf(&out, "\nconst pp_program pp_rank_%d = {\n", rank->rank);
  emit_scalars(&r);
  emit_tables(&r);
  emit_places(&r);
  emit_checks(&r);
  if (target->program) target->program(&out, plan, rank);
  str_puts(&out, "};\n");
  emit_main(&r);
  char path[64];
  snprintf(path, sizeof path, "rank_%d.c", rank->rank);
  emit_add(arena, files, path, &out);
}
