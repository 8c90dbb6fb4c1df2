/* The proof, on exactly what will be emitted: the pp.rank ops and pp.transfers. In: actions, operations
 * and items of each rank. Out: `pp.proved`, or errors. Shares no code with `transfers` and `memory`.
 *
 *   progress  All ranks are run together over the strictest transport: a transfer completes when both
 *             ends have posted it and every transfer that either end posted before is complete. No rank
 *             ever chooses, so one run that ends shows that all end: it visits the graph of actions and
 *             transfers in a topological order. A run that stops has a cycle; it is printed.
 *   witness   The total order must agree: every rank posts in ascending numbers, each transfer once at
 *             each end, and waits for it once behind its post.
 *   actions   Each task of a stage runs once for each microbatch, its backward whole or in halves, on the stage's rank;
 *             what prepares the loop stands before it, what follows behind it, kind by kind.
 *   values    A send stands behind the action that makes its value, a use behind the wait for its receive, or behind
 *             its maker. Each value comes to a rank once.
 *   bytes     progress_bytes.c
 * Linear in actions and operations; the bytes n log n. */
#include "compiler/progress.h"

#include <string.h>

#include "compiler/compiler.h"

enum { FEW_ERRORS = 8 };

void proof_fail(Proof *p, Loc loc, const char *format, ...) {
  va_list args;
  va_start(args, format);
  if (p->n_errors++ < FEW_ERRORS) diag_verror(p->diag, loc, format, args);
  va_end(args);
}

/* --- reading ------------------------------------------------------------------------------------------- */

static void read_task(Proof *p, Op func, int stage) {
  int64_t n = 0, kind = op_int(func, "pp.kind", -1);
  TaskInfo *task = &p->tasks[stage * PP_TASK_KIND_COUNT + kind];
  *task = (TaskInfo){.stage = stage, .kind = (int)kind, .func = func};
  task->in = op_ints(p->arena, func, "pp.in", &n), task->n_in = (int)n;
  task->out = op_ints(p->arena, func, "pp.out", &n), task->n_out = (int)n;
  for (int i = 0; i < task->n_in; i++)
    if (task->in[i] >= p->n_values) p->n_values = (int)task->in[i] + 1;
  for (int i = 0; i < task->n_out; i++)
    if (task->out[i] >= p->n_values) p->n_values = (int)task->out[i] + 1;
  OpVec ops = ir_ops(p->arena, func, OP_PARAM);
  for (int i = 0; i < ops.n; i++) VEC_PUSH(p->arena, &task->reads, op_string(p->arena, ops.at[i], "param"));
}

static void read_stages(Proof *p) {
  p->tasks = arena_alloc_array(p->arena, (size_t)p->n_stages * PP_TASK_KIND_COUNT, sizeof *p->tasks);
  OpVec top = block_ops(p->arena, ir_body(p->ir));
  for (int i = 0; i < top.n; i++) {
    int stage = (int)op_int(top.at[i], "pp.stage", -1);
    if (stage < 0 || op_id(top.at[i]) != OP_NONE || op_is_func(top.at[i])) continue;
    OpVec funcs = ir_funcs(p->arena, top.at[i]);
    for (int k = 0; k < funcs.n; k++) read_task(p, funcs.at[k], stage);
  }
}

static Value unviewed(Value v) {
  Op op = value_owner(v);
  while (!op_is_null(op) && op_id(op) == OP_RESHAPE) v = op_operand(op, 0), op = value_owner(v);
  return v;
}

/* Who makes each value, and which are other shapes of the bytes of another. */
static void read_makers(Proof *p) {
  p->maker_stage = arena_alloc_array(p->arena, (size_t)p->n_values, sizeof *p->maker_stage);
  p->same_bytes = arena_alloc_array(p->arena, (size_t)p->n_values, sizeof *p->same_bytes);
  p->prepared = arena_alloc_array(p->arena, (size_t)p->n_values, sizeof *p->prepared);
  p->by_fwd = arena_alloc_array(p->arena, (size_t)p->n_values, sizeof *p->by_fwd);
  for (int v = 0; v < p->n_values; v++) p->maker_stage[v] = p->same_bytes[v] = -1;
  for (int i = 0; i < p->n_stages * PP_TASK_KIND_COUNT; i++) {
    const TaskInfo *task = &p->tasks[i];
    if (op_is_null(task->func)) continue;
    Op ret = func_return_op(task->func);
    for (int k = 0; k < task->n_out; k++) {
      int v = (int)task->out[k];
      p->maker_stage[v] = task->stage;
      p->by_fwd[v] |= task->kind == PP_FWD;
      p->prepared[v] |= task->kind == PP_PREPARE;
      Value base = unviewed(op_operand(ret, k));
      if (op_is_null(value_owner(base)) && (int)task->in[value_index(base)] != v)
        p->same_bytes[v] = (int)task->in[value_index(base)];
      for (int j = 0; j < k && p->same_bytes[v] < 0; j++)
        if (value_equal(unviewed(op_operand(ret, j)), base) && p->same_bytes[task->out[j]] != v)
          p->same_bytes[v] = (int)task->out[j];
    }
  }
}

static void read_names(Proof *p) {
  p->names = arena_alloc_array(p->arena, (size_t)p->n_values, sizeof *p->names);
  const char *text = op_string(p->arena, ir_top(p->ir), "pp.value_names");
  for (int v = 0; v < p->n_values; v++) {
    size_t length = text ? strcspn(text, "\n") : 0;
    p->names[v] = length ? arena_strndup(p->arena, text, length) : arena_printf(p->arena, "value %d", v);
    if (text) text += length + (text[length] == '\n');
  }
}

static void read_transfers(Proof *p) {
  OpVec ops = ir_ops(p->arena, ir_top(p->ir), OP_TRANSFERS);
  int64_t n = 0;
  const int64_t *table = ops.n ? op_ints(p->arena, ops.at[0], "table", &n) : NULL;
  p->n_transfers = (int)(n / 5);
  p->transfers = arena_alloc_array(p->arena, (size_t)p->n_transfers, sizeof *p->transfers);
  for (int i = 0; i < p->n_transfers; i++) {
    const int64_t *row = &table[5 * (int64_t)i];
    bool within = row[0] >= 0 && row[0] < p->n_values && row[1] >= -1 && row[1] < p->n_microbatches && row[2] >= 0 &&
                  row[2] < p->n_ranks && row[3] >= 0 && row[3] < p->n_ranks && row[2] != row[3];
    if (!within) proof_fail(p, op_loc(p->ir, ops.at[0]), "transfer %d can't be: value %lld of microbatch %lld from rank %lld to rank %lld",
                      i, (long long)row[0], (long long)row[1], (long long)row[2], (long long)row[3]);
    p->transfers[i] = (TransferInfo){.value = (int)row[0], .microbatch = (int)row[1], .from = (int)row[2],
                                     .to = (int)row[3], .made = (int)row[4], .events = {-1, -1, -1, -1}};
  }
}

Loc proof_line(const RankInfo *rank, int action) {
  if (rank->n_actions == 0) return (Loc){0};
  return rank->lines[action < rank->n_actions ? action : rank->n_actions - 1];
}

const char *proof_transfer(Proof *p, int number) {
  const TransferInfo *t = &p->transfers[number];
  const char *microbatch = t->microbatch < 0 ? "" : arena_printf(p->arena, " of microbatch %d", t->microbatch);
  return arena_printf(p->arena, "%s%s from rank %d to rank %d", p->names[t->value], microbatch, t->from, t->to);
}

static const char *action_text(Proof *p, const RankInfo *rank, int action) {
  if (action >= rank->n_actions) return "the end of the step";
  const int64_t *a = &rank->actions[3 * (int64_t)action];
  const char *kind = pp_task_kind_name((pp_task_kind)a[0]);
  if (a[2] < 0) return arena_printf(p->arena, "%s(%d)", kind, (int)a[1]);
  return arena_printf(p->arena, "%s(%d, %d)", kind, (int)a[1], (int)a[2]);
}

static bool is_of_loop(int64_t kind) { return kind <= PP_BWD_WEIGHT; }

/* A task of a stage of this rank, with a microbatch exactly when it belongs to the loop. */
static void check_action(Proof *p, const RankInfo *rank, int r, int action) {
  const int64_t *a = &rank->actions[3 * (int64_t)action];
  bool known = a[0] >= 0 && a[0] < PP_TASK_KIND_COUNT && a[1] >= 0 && a[1] < p->n_stages;
  bool timed = known && (is_of_loop(a[0]) ? a[2] >= 0 && a[2] < p->n_microbatches : a[2] == -1);
  if (!timed || p->stage_ranks[a[1]] != r || op_is_null(p->tasks[a[1] * PP_TASK_KIND_COUNT + a[0]].func))
    proof_fail(p, proof_line(rank, action), "rank %d: action %d is not its own: kind %lld, stage %lld, microbatch %lld", r, action,
         (long long)a[0], (long long)a[1], (long long)a[2]);
}

/* Enters an operation with its transfer: the right rank, once, a wait behind its post. */
static void enter_operation(Proof *p, RankInfo *rank, int r, Event e, int position) {
  Loc loc = proof_line(rank, (position + 1) / 2);
  if (e.index < 0 || e.index >= p->n_transfers || e.what < 0 || e.what > PP_AWAIT_SEND) {
    proof_fail(p, loc, "rank %d: operation %d on transfer %d", r, e.what, e.index);
    return;
  }
  TransferInfo *t = &p->transfers[e.index];
  bool sends = e.what == PP_POST_SEND || e.what == PP_AWAIT_SEND;
  bool posts = e.what == PP_POST_SEND || e.what == PP_POST_RECEIVE;
  if ((sends ? t->from : t->to) != r || t->events[e.what] >= 0)
    proof_fail(p, loc, "rank %d: operation %d on %s is not its own, or stands twice", r, e.what, proof_transfer(p, e.index));
  if (!posts && t->events[sends ? PP_POST_SEND : PP_POST_RECEIVE] < 0)
    proof_fail(p, loc, "rank %d waits for %s before it has posted it", r, proof_transfer(p, e.index));
  t->events[e.what] = rank->n_events;
  if (posts && rank->n_posts && rank->posts[rank->n_posts - 1] >= e.index) rank->unordered = e.index;
  if (posts) rank->posts[rank->n_posts++] = e.index;
}

static void read_rank(Proof *p, Op op) {
  int r = (int)op_int(op, "rank", 0);
  RankInfo *rank = &p->ranks[r];
  Arena *tmp = arena_create();
  int64_t n = 0, n_ops = 0, next = 0;
  rank->op = op;
  rank->unordered = -1;
  rank->actions = op_ints(p->arena, op, "actions", &n), rank->n_actions = (int)(n / 3);
  rank->overlaps = op_ints(p->arena, op, "overlaps", &n);
  rank->bytes = op_ints(p->arena, op, "bytes", &n);
  rank->lines = op_lines(p->ir, p->arena, op, "lines", &n);
  for (int a = 0; a < rank->n_actions; a++) check_action(p, rank, r, a);
  const int64_t *ops = op_ints(tmp, op, "ops", &n_ops);
  rank->events = arena_alloc_array(p->arena, (size_t)(rank->n_actions + n_ops / 3), sizeof *rank->events);
  rank->event_of = arena_alloc_array(p->arena, (size_t)rank->n_actions, sizeof *rank->event_of);
  rank->posts = arena_alloc_array(p->arena, (size_t)(n_ops / 3), sizeof *rank->posts);
  for (int position = 0; position < 2 * rank->n_actions; position++) {
    for (; next < n_ops && ops[next] == position; next += 3) {
      Event e = {(int)ops[next + 1], (int)ops[next + 2]};
      enter_operation(p, rank, r, e, position);
      rank->events[rank->n_events++] = e;
    }
    if (position % 2) continue;
    rank->event_of[position / 2] = rank->n_events;
    rank->events[rank->n_events++] = (Event){RUN, position / 2};
  }
  if (next < n_ops) proof_fail(p, proof_line(rank, 0), "rank %d: operations out of order", r);
  arena_destroy(tmp);
}

/* --- progress ------------------------------------------------------------------------------------------ */

typedef struct {
  int *next;   /* [n_ranks] event that a rank has to do next */
  int *head;   /* [n_ranks] how many of its posts are complete */
  int *ready;  /* stack of ranks */
  bool *queued;
  int n_ready;
} Run;

static void wake(Run *run, int r) {
  if (run->queued[r]) return;
  run->queued[r] = true;
  run->ready[run->n_ready++] = r;
}

/* The transfer at the head of r's queue, if both ends have posted it and it heads both queues. */
static bool complete_head(Proof *p, Run *run, int r, int *out_peer) {
  const RankInfo *rank = &p->ranks[r];
  if (run->head[r] >= rank->n_posts) return false;
  int number = rank->posts[run->head[r]];
  TransferInfo *t = &p->transfers[number];
  int peer = t->from == r ? t->to : t->from;
  const RankInfo *other = &p->ranks[peer];
  bool heads_other = run->head[peer] < other->n_posts && other->posts[run->head[peer]] == number;
  if (!t->issued[0] || !t->issued[1] || !heads_other) return false;
  t->complete = true;
  run->head[r]++;
  run->head[peer]++;
  wake(run, r);
  wake(run, peer);
  *out_peer = peer;
  return true;
}

static void advance_rank(Proof *p, Run *run, int r) {
  const RankInfo *rank = &p->ranks[r];
  int peer;
  while (complete_head(p, run, r, &peer)) continue;
  for (; run->next[r] < rank->n_events; run->next[r]++) {
    Event e = rank->events[run->next[r]];
    if (e.what == RUN) continue;
    TransferInfo *t = &p->transfers[e.index];
    if (e.what == PP_POST_SEND) t->issued[0] = true;
    else if (e.what == PP_POST_RECEIVE) t->issued[1] = true;
    else if (!t->complete) return;
    while (complete_head(p, run, r, &peer)) continue;
  }
}

int proof_next_action(const RankInfo *rank, int event) {
  while (event < rank->n_events && rank->events[event].what != RUN) event++;
  return event < rank->n_events ? rank->events[event].index : rank->n_actions;
}

/* What keeps a node of the stopped run from going on. Nodes: ranks, then transfers. A rank waits for a
 * transfer; a transfer for a rank that has not posted it, or for the one before it in a queue. */
static int blocker(const Proof *p, const Run *run, int node) {
  if (node < p->n_ranks) return p->n_ranks + p->ranks[node].events[run->next[node]].index;
  const TransferInfo *t = &p->transfers[node - p->n_ranks];
  if (!t->issued[0]) return t->from;
  if (!t->issued[1]) return t->to;
  int at_sender = p->ranks[t->from].posts[run->head[t->from]];
  int at_receiver = p->ranks[t->to].posts[run->head[t->to]];
  return p->n_ranks + (at_sender != node - p->n_ranks ? at_sender : at_receiver);
}

static void report_node(Proof *p, const Run *run, int node, bool is_first) {
  Loc loc;
  const char *text;
  if (node < p->n_ranks) {
    const RankInfo *rank = &p->ranks[node];
    int action = proof_next_action(rank, run->next[node]);
    loc = proof_line(rank, action);
    text = arena_printf(p->arena, "rank %d, before %s, waits for %s", node, action_text(p, rank, action),
                        proof_transfer(p, rank->events[run->next[node]].index));
  } else {
    const TransferInfo *t = &p->transfers[node - p->n_ranks];
    int by = blocker(p, run, node);
    loc = proof_line(&p->ranks[t->from], t->made);
    const char *reason = by < p->n_ranks ? arena_printf(p->arena, "rank %d has not come to it", by)
                                         : arena_printf(p->arena, "it stands behind %s", proof_transfer(p, by - p->n_ranks));
    text = arena_printf(p->arena, "%s can't move: %s", proof_transfer(p, node - p->n_ranks), reason);
  }
  if (is_first) proof_fail(p, loc, "this can't finish: %s", text);
  else diag_note(p->diag, loc, "%s", text);
}

static void report_cycle(Proof *p, const Run *run) {
  int r = 0;
  while (run->next[r] >= p->ranks[r].n_events) r++;
  bool *seen = arena_alloc_array(p->arena, (size_t)(p->n_ranks + p->n_transfers), sizeof *seen);
  int node = r;
  for (; !seen[node]; node = blocker(p, run, node)) seen[node] = true;
  int begin = node;
  do {
    report_node(p, run, node, node == begin);
    node = blocker(p, run, node);
  } while (node != begin);
}

static void check_progress(Proof *p) {
  size_t n = (size_t)p->n_ranks;
  Run run = {.next = arena_alloc_array(p->arena, n, sizeof(int)), .head = arena_alloc_array(p->arena, n, sizeof(int)),
             .ready = arena_alloc_array(p->arena, n, sizeof(int)), .queued = arena_alloc_array(p->arena, n, sizeof(bool))};
  for (int r = 0; r < p->n_ranks; r++) wake(&run, r);
  while (run.n_ready > 0) {
    int r = run.ready[--run.n_ready];
    run.queued[r] = false;
    advance_rank(p, &run, r);
  }
  for (int r = 0; r < p->n_ranks; r++)
    if (run.next[r] < p->ranks[r].n_events) {
      report_cycle(p, &run);
      return;
    }
}

/* Without it a later pass could not tell where a wait may stand. */
static void check_witness(Proof *p) {
  for (int r = 0; r < p->n_ranks; r++)
    if (p->ranks[r].unordered >= 0)
      proof_fail(p, proof_line(&p->ranks[r], 0), "rank %d posts %s out of the total order", r,
           proof_transfer(p, p->ranks[r].unordered));
}

/* --- actions ------------------------------------------------------------------------------------------- */

/* How often each task ran: [task][microbatch], after the loop [task][0]. */
typedef struct {
  uint8_t *times;
  int n_microbatches;
} Ran;

static uint8_t *ran_at(const Ran *ran, int stage, int kind, int microbatch) {
  int64_t task = stage * PP_TASK_KIND_COUNT + kind;
  return &ran->times[task * ran->n_microbatches + (microbatch < 0 ? 0 : microbatch)];
}

/* Before the loop, the loop, then kind by kind. */
static int64_t phase(int64_t kind) { return kind == PP_PREPARE ? -1 : is_of_loop(kind) ? 0 : kind; }

static void count_actions(Proof *p, const RankInfo *rank, int r, Ran *ran) {
  for (int i = 0; i < rank->n_actions; i++) {
    const int64_t *a = &rank->actions[3 * (int64_t)i];
    uint8_t *times = ran_at(ran, (int)a[1], (int)a[0], (int)a[2]);
    if (*times) proof_fail(p, proof_line(rank, i), "rank %d runs %s twice", r, action_text(p, rank, i));
    *times = 1;
    if (i > 0 && phase(a[0]) < phase(a[-3]))
      proof_fail(p, proof_line(rank, i), "rank %d runs %s behind %s", r, action_text(p, rank, i), action_text(p, rank, i - 1));
  }
}

static bool exists(const Proof *p, int stage, int kind) {
  return !op_is_null(p->tasks[stage * PP_TASK_KIND_COUNT + kind].func);
}

/* A task that isn't there needs no run. */
static bool is_done(const Proof *p, const Ran *ran, int stage, int kind, int microbatch) {
  return !exists(p, stage, kind) || *ran_at(ran, stage, kind, microbatch);
}

/* A stage without parameters that hands nothing back: halves of nothing are no tasks. */
static bool has_no_backward(Proof *p, int stage) {
  if (exists(p, stage, PP_BWD_INPUT) || exists(p, stage, PP_BWD_WEIGHT)) return false;
  const TaskInfo *bwd = &p->tasks[stage * PP_TASK_KIND_COUNT + PP_BWD];
  return op_is_null(bwd->func) || block_ops(p->arena, func_body(bwd->func)).n == 1;
}

static bool is_backward_done(const Proof *p, const Ran *ran, int stage, int m) {
  bool input = *ran_at(ran, stage, PP_BWD_INPUT, m), weight = *ran_at(ran, stage, PP_BWD_WEIGHT, m);
  if (*ran_at(ran, stage, PP_BWD, m)) return !input && !weight;
  if (!exists(p, stage, PP_BWD_INPUT) && !exists(p, stage, PP_BWD_WEIGHT)) return false;
  return is_done(p, ran, stage, PP_BWD_INPUT, m) && is_done(p, ran, stage, PP_BWD_WEIGHT, m);
}

/* A refresh is left out where nothing is received for it. */
static void check_actions(Proof *p) {
  size_t n = (size_t)p->n_stages * PP_TASK_KIND_COUNT * (size_t)p->n_microbatches;
  Ran ran = {arena_alloc_array(p->arena, n, 1), p->n_microbatches};
  for (int r = 0; r < p->n_ranks; r++) count_actions(p, &p->ranks[r], r, &ran);
  for (int s = 0; s < p->n_stages; s++) {
    const RankInfo *rank = &p->ranks[p->stage_ranks[s]];
    bool whole = is_done(p, &ran, s, PP_PREPARE, -1) && is_done(p, &ran, s, PP_FINISH, -1) && is_done(p, &ran, s, PP_DECIDE, -1) && is_done(p, &ran, s, PP_UPDATE, -1);
    bool forward_only = p->generate || has_no_backward(p, s);
    for (int m = 0; m < p->n_microbatches && whole; m++)
      whole = is_done(p, &ran, s, PP_FWD, m) && (forward_only || is_backward_done(p, &ran, s, m));
    if (!whole)
      proof_fail(p, proof_line(rank, 0), "rank %d doesn't run all of stage %d, or its backward whole and in halves", (int)p->stage_ranks[s], s);
  }
}

/* --- values -------------------------------------------------------------------------------------------- */

Table proof_table_create(Proof *p, Arena *arena) {
  return (Table){.row = arena_alloc_array(arena, (size_t)p->n_values, sizeof(int))};
}

void proof_table_add_row(Table *table, int value) {
  if (!table->row[value]) table->row[value] = ++table->n_rows;
}

void proof_table_close(Proof *p, Arena *arena, Table *table) {
  table->number = arena_alloc_array(arena, (size_t)table->n_rows * ((size_t)p->n_microbatches + 1), sizeof(int));
}

int *proof_table_at(const Proof *p, const Table *table, int value, int microbatch) {
  if (!table->row[value]) return NULL;
  int64_t columns = p->n_microbatches + 1;
  return &table->number[(table->row[value] - 1) * columns + (microbatch < 0 ? columns - 1 : microbatch)];
}

const TaskInfo *proof_task(const Proof *p, const RankInfo *rank, int action) {
  const int64_t *a = &rank->actions[3 * (int64_t)action];
  return &p->tasks[a[1] * PP_TASK_KIND_COUNT + a[0]];
}

static void check_sends(Proof *p) {
  for (int i = 0; i < p->n_transfers; i++) {
    const TransferInfo *t = &p->transfers[i];
    const RankInfo *rank = &p->ranks[t->from];
    bool complete = true;
    for (int k = 0; k < 4; k++) complete &= t->events[k] >= 0;
    if (!complete || t->made < 0 || t->made >= rank->n_actions) {
      proof_fail(p, proof_line(rank, 0), "%s lacks an operation", proof_transfer(p, i));
      continue;
    }
    const TaskInfo *task = proof_task(p, rank, t->made);
    bool makes = false;
    for (int k = 0; k < task->n_out; k++) makes |= task->out[k] == t->value;
    makes &= rank->actions[3 * (int64_t)t->made + 2] == t->microbatch;
    if (!makes || t->events[PP_POST_SEND] < rank->event_of[t->made])
      proof_fail(p, proof_line(rank, t->made), "rank %d sends %s before it is made", t->from, proof_transfer(p, i));
  }
}

/* Every transfer has been posted at both ends once (check_sends): a rank's posts are all that it takes part in. */
const TransferInfo *proof_posted(const Proof *p, const RankInfo *rank, int post) {
  return &p->transfers[rank->posts[post]];
}

/* From which event on a value is there, + 1: what comes to a rank, and what is made on it. */
typedef struct {
  Table incoming, made;
} Arrivals;

static void list_values(Proof *p, int r, Arena *arena, Arrivals *out) {
  const RankInfo *rank = &p->ranks[r];
  out->incoming = proof_table_create(p, arena), out->made = proof_table_create(p, arena);
  for (int k = 0; k < rank->n_posts; k++)
    if (proof_posted(p, rank, k)->to == r) proof_table_add_row(&out->incoming, proof_posted(p, rank, k)->value);
  for (int v = 0; v < p->n_values; v++)
    if (p->maker_stage[v] >= 0 && p->stage_ranks[p->maker_stage[v]] == r) proof_table_add_row(&out->made, v);
  proof_table_close(p, arena, &out->incoming);
  proof_table_close(p, arena, &out->made);
}

static void list_arrivals(Proof *p, int r, Arrivals *out) {
  const RankInfo *rank = &p->ranks[r];
  for (int k = 0; k < rank->n_posts; k++) {
    const TransferInfo *t = proof_posted(p, rank, k);
    if (t->to != r) continue;
    int *from = proof_table_at(p, &out->incoming, t->value, t->microbatch);
    if (*from) proof_fail(p, proof_line(rank, 0), "rank %d receives %s twice", r, proof_transfer(p, rank->posts[k]));
    *from = t->events[PP_AWAIT_RECEIVE] + 1;
  }
}

static void check_inputs(Proof *p, int r, int a, const Arrivals *arrivals) {
  const RankInfo *rank = &p->ranks[r];
  const TaskInfo *task = proof_task(p, rank, a);
  int microbatch = (int)rank->actions[3 * (int64_t)a + 2];
  for (int k = 0; k < task->n_in; k++) {
    int v = (int)task->in[k];
    bool own = p->maker_stage[v] >= 0 && p->stage_ranks[p->maker_stage[v]] == r;
    const int *from = proof_table_at(p, own ? &arrivals->made : &arrivals->incoming, v, p->prepared[v] ? -1 : microbatch);
    if (!from || !*from || *from > rank->event_of[a])
      proof_fail(p, proof_line(rank, a), "rank %d: %s uses %s before it has %s", r, action_text(p, rank, a), p->names[v],
           own ? "made it" : "come");
  }
}

/* The end of the overlap block that an action begins: its members may not need one another. */
static int block_end(const RankInfo *rank, int a) {
  int end = a + 1;
  while (rank->overlaps && rank->overlaps[a] >= 0 && end < rank->n_actions && rank->overlaps[end] == rank->overlaps[a]) end++;
  return end;
}

static void check_uses(Proof *p, int r) {
  const RankInfo *rank = &p->ranks[r];
  Arena *arena = arena_create();
  Arrivals arrivals;
  list_values(p, r, arena, &arrivals);
  list_arrivals(p, r, &arrivals);
  for (int begin = 0, end; begin < rank->n_actions; begin = end) {
    end = block_end(rank, begin);
    for (int a = begin; a < end; a++) check_inputs(p, r, a, &arrivals);
    for (int a = begin; a < end; a++) {
      const TaskInfo *task = proof_task(p, rank, a);
      for (int k = 0; k < task->n_out; k++)
        *proof_table_at(p, &arrivals.made, (int)task->out[k], (int)rank->actions[3 * (int64_t)a + 2]) = rank->event_of[a] + 1;
    }
  }
  arena_destroy(arena);
}

/* --- entry --------------------------------------------------------------------------------------------- */

static void read_all(Proof *p) {
  Op top = ir_top(p->ir);
  int64_t n = 0;
  p->n_stages = (int)op_int(top, "pp.stages", 1);
  p->n_ranks = (int)op_int(top, "pp.ranks", 1);
  p->n_microbatches = (int)op_int(top, "pp.microbatches", 1);
  p->generate = op_unit(top, "pp.generate");
  p->stage_ranks = op_ints(p->arena, top, "pp.stage_ranks", &n);
  if (n != p->n_stages) bug("no ranks for the stages");
  read_stages(p);
  read_makers(p);
  read_names(p);
  read_transfers(p);
  if (p->n_errors) return;
  p->ranks = arena_alloc_array(p->arena, (size_t)p->n_ranks, sizeof *p->ranks);
  OpVec ranks = ir_ops(p->arena, top, OP_RANK);
  for (int i = 0; i < ranks.n; i++) read_rank(p, ranks.at[i]);
}

bool progress_run(Ir *ir) {
  Proof p = {.ir = ir, .diag = ir_diag(ir), .arena = arena_create()};
  read_all(&p);
  if (p.n_errors == 0) check_actions(&p);
  if (p.n_errors == 0) check_progress(&p);
  if (p.n_errors == 0) check_witness(&p);
  if (p.n_errors == 0) check_sends(&p);
  for (int r = 0; r < p.n_ranks && p.n_errors == 0; r++) check_uses(&p, r);
  for (int r = 0; r < p.n_ranks && p.n_errors == 0; r++) proof_check_bytes(&p, r);
  bool ok = p.n_errors == 0;
  if (ok) op_set_unit(ir, ir_top(ir), "pp.proved");
  arena_destroy(p.arena);
  return ok;
}
