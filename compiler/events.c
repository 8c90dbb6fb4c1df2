/* In: the plan. Out: the same with the stream of each action and, for each transfer operation, which
 * compute streams wait or are waited for: PlanAction.streams, PlanTransferOp.waits and implied_by.
 *
 * A rank issues everything in the order of its plan, on a compute stream, a second one for members of
 * overlap blocks, and one communication stream. What must wait is found from what touches the same bytes:
 * an access and an earlier one on another stream, one of which writes. Each such pair costs a wait only
 * if the streams' clocks (what a stream knows to be done of each other one) don't say already that it is
 * ordered. A post waits where its bytes need it, for all that its compute stream has been given: the
 * latest place, so none is there for nothing. An await is kept when an action touches the transfer's bytes
 * that nothing else has told its stream of; of several it is the last on the communication stream. A
 * second walk drops what a wait that was put in behind its time made needless.
 *
 * Ranks are looked at one by one: docs/ir.md says why what comes over the other ranks adds nothing.
 * Steps too: a step begins and ends with all streams of its rank joined.
 * Last accesses are in a tree over the pieces of memory between the bounds of transfers: n log n. */
#include <string.h>

#include "compiler/base/sort.h"
#include "compiler/compiler.h"
#include "compiler/plan_rank.h"

enum { COMMUNICATION = PP_COMPUTE_STREAMS, STREAMS };
enum { READ, WRITE };
enum { BLOCK = 8 }; /* members of an overlap block that are looked at together; longer ones are cut */

/* What a stream knows: the last event of each stream that is done when its next one starts. */
typedef struct {
  int done[STREAMS];
  int by; /* the transfer whose wait told of done[COMMUNICATION], -1 */
} Clock;

typedef struct {
  uint64_t begin, end;
  bool writes;
} Access;
typedef VEC(Access) Accesses;

/* What a task does with its arguments. */
typedef struct {
  bool *writes;           /* [n_arguments]; else it reads */
  bool stores_loss;
  VEC(int) outputs;       /* that it stores */
} Uses;

/* Last events in a piece of memory, of each stream. */
typedef struct {
  int last[2][STREAMS];
} Touched;

typedef struct {
  int64_t key;
} Bound;

typedef struct {
  const Plan *plan;
  const PlanRank *rank;
  Arena *arena;           /* of the rank */
  const Uses *uses;       /* [n_tasks] */
  uint64_t *bounds;       /* ascending */
  int n_pieces;
  Touched *all, *most;    /* [2 n_pieces]: for the whole of a node; the largest below it */
  Clock clocks[STREAMS];
  int now;                /* number of the present event */
  int *transfer_of;       /* [events] of posts */
  Clock *behind;          /* [n_transfers] the communication stream's clock behind it */
  int *posted;            /* [n_transfers] event */
  PlanTransferOp **awaits; /* [n_transfers] the operation that stands there, once it has been passed */
  Accesses accesses;      /* of the present action */
  int *needed;            /* of each access: the transfer that it meets, -1 */
} Events;

/* --- accesses --------------------------------------------------------------------------------------------- */

static void mark_buffer(const PlanTask *task, int buffer, bool *marks) {
  for (int k = 0; k < task->n_arguments; k++)
    if (plan_argument_holds(&task->arguments[k], k, &task->buffers[buffer])) marks[k] = true;
}

static Uses task_uses(const PlanTask *task, Arena *arena) {
  Uses u = {.writes = arena_alloc_array(arena, (size_t)task->n_arguments, 1)};
  for (int i = 0; i < task->n_statements; i++) {
    const PlanStatement *s = &task->statements[i];
    for (int k = 0; k < s->n_out; k++) mark_buffer(task, s->out[k], u.writes);
    if (s->workspace >= 0) mark_buffer(task, s->workspace, u.writes);
    u.stores_loss |= s->op == PLAN_OP_LOSS;
    if (s->op == PLAN_OP_OUTPUT && s->n_out == 0) VEC_PUSH(arena, &u.outputs, s->index);
  }
  for (int k = 0; k < task->n_arguments; k++)
    u.writes[k] |= task->arguments[k].is_result || task->arguments[k].kind == PLAN_ARG_WORKSPACE;
  return u;
}

static int64_t vector_bytes(const Plan *plan, const PlanArgument *a) {
  switch (a->place) {
  case PLAN_STEP: return 8;
  case PLAN_LOSSES:
  case PLAN_COUNTS: return 8 * (int64_t)plan->n_microbatches;
  case PLAN_CONTROL: return 8 * PP_CONTROL_SIZE;
  case PLAN_NORMS: return 8 * (int64_t)plan->n_parameters;
  case PLAN_OUTPUT: return 8 * plan->outputs[a->index].n * plan->n_microbatches;
  case PLAN_PROMPT: return 4 * plan->length;
  case PLAN_LOSS_SCALE: return 8 * PP_LOSS_SCALE_SIZE;
  case PLAN_LOGITS: return plan->length * plan->vocabulary * pp_dtype_bytes(plan->dtype);
  default: bug("no bytes of place %d", a->place);
  }
}

static int64_t argument_bytes(const Plan *plan, const PlanTask *task, const PlanArgument *a) {
  switch (a->kind) {
  case PLAN_ARG_FRAME: return plan->stages[task->stage].frame_bytes;
  case PLAN_ARG_WEIGHT_FRAME: return plan->stages[task->stage].weight_frame_bytes;
  case PLAN_ARG_WORKSPACE: return task->workspace_bytes;
  case PLAN_ARG_RUNTIME: return vector_bytes(plan, a);
  default: return plan_bytes(&a->type);
  }
}

static void add_access(Arena *arena, Accesses *list, uint64_t begin, int64_t bytes, bool writes) {
  if (begin == PLAN_NOWHERE || bytes <= 0) return;
  VEC_PUSH(arena, list, (Access){begin, begin + (uint64_t)bytes, writes});
}

/* The part of a vector over microbatches that is the action's. */
static void add_slot(Arena *arena, Accesses *list, uint64_t vector, int64_t bytes, int microbatch) {
  if (vector != PLAN_NOWHERE) add_access(arena, list, vector + (uint64_t)(bytes * microbatch), bytes, true);
}

static void list_accesses(const Events *e, const PlanAction *a, Accesses *out) {
  const Plan *plan = e->plan;
  const PlanTask *task = &plan->tasks[a->task];
  const Uses *u = &e->uses[a->task];
  out->n = 0;
  for (int k = 0; k < task->n_arguments; k++)
    add_access(e->arena, out, a->offsets[k], argument_bytes(plan, task, &task->arguments[k]), u->writes[k]);
  if (task->kind == PP_UPDATE) add_access(e->arena, out, e->rank->control, 8 * PP_CONTROL_SIZE, false);
  if (u->stores_loss) {
    add_slot(e->arena, out, e->rank->losses, 8, a->microbatch);
    add_slot(e->arena, out, e->rank->counts, 8, a->microbatch);
  }
  for (int k = 0; k < u->outputs.n; k++)
    add_slot(e->arena, out, e->rank->output_slots[u->outputs.at[k]], 8 * plan->outputs[u->outputs.at[k]].n, a->microbatch);
}

static Access transfer_access(const Events *e, int number) {
  const PlanTransfer *t = &e->plan->transfers[number];
  bool sends = t->from == e->rank->rank;
  uint64_t begin = (sends ? t->send_offset : t->receive_offset) & ~PLAN_IN_WINDOW;
  if (sends || t->receive_space == PP_WINDOW) begin |= PLAN_IN_WINDOW;
  return (Access){begin, begin + (uint64_t)t->size_bytes, !sends};
}

/* --- streams of an overlap block ------------------------------------------------------------------------------ */

static bool clash(const Accesses *x, const Accesses *y) {
  for (int i = 0; i < x->n; i++)
    for (int k = 0; k < y->n; k++) {
      const Access *a = &x->at[i], *b = &y->at[k];
      if ((a->writes || b->writes) && a->begin < b->end && b->begin < a->end) return true;
    }
  return false;
}

/* Members in their order: each on the stream with less on it, but those that touch the same bytes (one
 * accumulator, say) on one, so that they keep their order. Returns the end of what can run together. */
static int place_members(Events *e, PlanAction *actions, int begin, int end) {
  Accesses of[BLOCK] = {0};
  int stream[BLOCK], load[PP_COMPUTE_STREAMS] = {0}, n = 0;
  for (; begin + n < end && n < BLOCK; n++) {
    bool meets[PP_COMPUTE_STREAMS] = {false};
    list_accesses(e, &actions[begin + n], &of[n]);
    for (int k = 0; k < n; k++)
      if (clash(&of[n], &of[k])) meets[stream[k]] = true;
    if (meets[PP_STREAM_COMPUTE] && meets[PP_STREAM_SECOND]) break;
    bool second = meets[PP_STREAM_SECOND] || (!meets[PP_STREAM_COMPUTE] && load[PP_STREAM_SECOND] < load[PP_STREAM_COMPUTE]);
    stream[n] = second ? PP_STREAM_SECOND : PP_STREAM_COMPUTE;
    load[stream[n]]++;
  }
  for (int k = 0; k < n && load[PP_STREAM_SECOND]; k++)
    actions[begin + k].streams = (stream[k] == PP_STREAM_SECOND ? PP_ON_SECOND : 0) | (k == 0 ? PP_FORK : 0) | (k == n - 1 ? PP_JOIN : 0);
  return begin + n;
}

static void place_actions(Events *e, PlanAction *actions) {
  int n = e->rank->n_actions;
  for (int begin = 0, end; begin < n; begin = end) {
    end = begin + 1;
    if (actions[begin].overlap < 0) continue;
    while (end < n && actions[end].overlap == actions[begin].overlap) end++;
    for (int i = begin; i < end;) i = place_members(e, actions, i, end);
  }
}

/* --- pieces ------------------------------------------------------------------------------------------------- */

static int by_bound(const void *px, const void *py) {
  const Bound *x = px, *y = py;
  return x->key < y->key ? -1 : x->key > y->key;
}

/* In the order of places: the window's, with bit 63, come last. */
static int64_t bound_key(uint64_t place) { return (int64_t)(place ^ PLAN_IN_WINDOW); }

static void add_bounds(const Events *e, Bound *bounds, size_t *n, int n_ops, const PlanTransferOp *ops) {
  for (int i = 0; i < n_ops; i++) {
    if (ops[i].op != PP_POST_SEND && ops[i].op != PP_POST_RECEIVE) continue;
    Access a = transfer_access(e, ops[i].transfer);
    bounds[(*n)++].key = bound_key(a.begin);
    bounds[(*n)++].key = bound_key(a.end);
  }
}

static void cut_memory(Events *e, int n_ops) {
  Bound *bounds = arena_alloc_array(e->arena, 2 * (size_t)n_ops, sizeof *bounds);
  size_t n = 0;
  for (int i = 0; i < e->rank->n_actions; i++) {
    const PlanAction *a = &e->rank->actions[i];
    add_bounds(e, bounds, &n, a->n_before, a->before);
    add_bounds(e, bounds, &n, a->n_after, a->after);
  }
  sort_by_key(bounds, n, sizeof *bounds, 0, by_bound);
  e->bounds = arena_alloc_array(e->arena, n, sizeof *e->bounds);
  for (size_t i = 0; i < n; i++)
    if (i == 0 || bounds[i].key != bounds[i - 1].key) e->bounds[e->n_pieces++] = (uint64_t)bounds[i].key ^ PLAN_IN_WINDOW;
  if (e->n_pieces) e->n_pieces--;
  e->all = arena_alloc_array(e->arena, 2 * (size_t)e->n_pieces, sizeof *e->all);
  e->most = arena_alloc_array(e->arena, 2 * (size_t)e->n_pieces, sizeof *e->most);
}

/* The first bound that is not below `place`. */
static int bound_at(const Events *e, uint64_t place) {
  int low = 0, high = e->n_pieces + 1;
  while (low < high) {
    int mid = (low + high) / 2;
    if (e->bounds[mid] < place) low = mid + 1;
    else high = mid;
  }
  return low;
}

/* The pieces [first, end) that hold some of its bytes. What lies beyond all transfers meets none. */
static bool find_pieces(const Events *e, const Access *a, int *out_first, int *out_end) {
  if (!e->n_pieces) return false;
  int first = bound_at(e, a->begin), end = bound_at(e, a->end);
  if (first > e->n_pieces || e->bounds[first] != a->begin) first--;
  *out_first = first < 0 ? 0 : first;
  *out_end = end > e->n_pieces ? e->n_pieces : end;
  return *out_first < *out_end;
}

static void take_larger(Touched *x, const Touched *y) {
  for (int w = 0; w < 2; w++)
    for (int s = 0; s < STREAMS; s++)
      if (y->last[w][s] > x->last[w][s]) x->last[w][s] = y->last[w][s];
}

static Touched touched(const Events *e, int first, int end) {
  Touched t = {0};
  int n = e->n_pieces;
  for (int i = first + n; i >= 1; i /= 2) take_larger(&t, &e->all[i]);
  for (int i = end - 1 + n; i >= 1; i /= 2) take_larger(&t, &e->all[i]);
  for (int a = first + n, b = end + n; a < b; a /= 2, b /= 2) {
    if (a % 2) take_larger(&t, &e->most[a++]);
    if (b % 2) take_larger(&t, &e->most[--b]);
  }
  return t;
}

/* Events come in ascending numbers: the newest is the largest. */
static void touch(Events *e, int first, int end, bool writes, int stream) {
  int n = e->n_pieces;
  for (int a = first + n, b = end + n; a < b; a /= 2, b /= 2) {
    if (a % 2) e->all[a].last[writes][stream] = e->most[a].last[writes][stream] = e->now, a++;
    if (b % 2) --b, e->all[b].last[writes][stream] = e->most[b].last[writes][stream] = e->now;
  }
  for (int i = (first + n) / 2; i >= 1; i /= 2) e->most[i].last[writes][stream] = e->now;
  for (int i = (end - 1 + n) / 2; i >= 1; i /= 2) e->most[i].last[writes][stream] = e->now;
}

/* The last events that must be done before this access: all writes, and before a write all reads. */
static void needs_of(const Touched *t, bool writes, int *out_needs) {
  for (int s = 0; s < STREAMS; s++) {
    out_needs[s] = t->last[WRITE][s];
    if (writes && t->last[READ][s] > out_needs[s]) out_needs[s] = t->last[READ][s];
  }
}

/* --- clocks -------------------------------------------------------------------------------------------------- */

static void learn(Clock *x, const Clock *y) {
  if (y->done[COMMUNICATION] > x->done[COMMUNICATION]) x->by = y->by;
  for (int s = 0; s < STREAMS; s++)
    if (y->done[s] > x->done[s]) x->done[s] = y->done[s];
}

static void learn_of_transfer(Events *e, int stream, int transfer) {
  learn(&e->clocks[stream], &e->behind[transfer]);
  if (e->clocks[stream].done[COMMUNICATION] == e->posted[transfer]) e->clocks[stream].by = transfer;
}

static bool knows(const Clock *c, const int *needs) {
  for (int s = 0; s < STREAMS; s++)
    if (c->done[s] < needs[s]) return false;
  return true;
}

/* --- posts ---------------------------------------------------------------------------------------------------- */

/* The fewest compute streams whose clocks hold what it needs. */
static int waits_of_post(const Events *e, const int *needs) {
  const Clock *own = &e->clocks[COMMUNICATION];
  if (knows(own, needs)) return 0;
  for (int s = 0; s < PP_COMPUTE_STREAMS; s++) {
    Clock both = *own;
    learn(&both, &e->clocks[s]);
    if (knows(&both, needs)) return 1 << s;
  }
  return (1 << PP_COMPUTE_STREAMS) - 1;
}

/* Bytes that an earlier transfer of the stream holds are free when this one comes to them. */
static void imply_by_order(Events *e, int event, int transfer) {
  PlanTransferOp *await = event ? e->awaits[e->transfer_of[event]] : NULL;
  if (await && !await->waits && await->implied_by < 0) await->implied_by = transfer;
}

static void issue_post(Events *e, PlanTransferOp *op, int *last_told) {
  Access a = transfer_access(e, op->transfer);
  int first, end, needs[STREAMS];
  e->now++;
  e->transfer_of[e->now] = op->transfer;
  e->posted[op->transfer] = e->now;
  e->awaits[op->transfer] = NULL;
  op->waits = 0, op->implied_by = -1;
  if (find_pieces(e, &a, &first, &end)) {
    Touched t = touched(e, first, end);
    needs_of(&t, a.writes, needs);
    imply_by_order(e, needs[COMMUNICATION], op->transfer);
    needs[COMMUNICATION] = 0; /* one stream, one order */
    op->waits = waits_of_post(e, needs);
    bool touched_before = needs[PP_STREAM_COMPUTE] || needs[PP_STREAM_SECOND];
    if (!op->waits && touched_before) op->implied_by = *last_told;
    touch(e, first, end, a.writes, COMMUNICATION);
  }
  for (int s = 0; s < PP_COMPUTE_STREAMS; s++)
    if (op->waits >> s & 1) learn(&e->clocks[COMMUNICATION], &e->clocks[s]), *last_told = op->transfer;
  e->clocks[COMMUNICATION].done[COMMUNICATION] = e->now;
  e->clocks[COMMUNICATION].by = op->transfer;
  e->behind[op->transfer] = e->clocks[COMMUNICATION];
}

/* --- actions ------------------------------------------------------------------------------------------------- */

static int stream_of(const PlanAction *a) { return a->streams & PP_ON_SECOND ? PP_STREAM_SECOND : PP_STREAM_COMPUTE; }

/* Which transfer each access meets; returns the last event among them. */
static int meet_transfers(Events *e, int stream) {
  int last = 0;
  for (int k = 0; k < e->accesses.n; k++) {
    const Access *a = &e->accesses.at[k];
    int first, end, needs[STREAMS];
    e->needed[k] = 0;
    if (!find_pieces(e, a, &first, &end)) continue;
    Touched t = touched(e, first, end);
    needs_of(&t, a->writes, needs);
    e->needed[k] = needs[COMMUNICATION];
    if (e->needed[k] > last) last = e->needed[k];
    touch(e, first, end, a->writes, stream);
  }
  return last;
}

static void run_action(Events *e, const PlanAction *a) {
  int stream = stream_of(a);
  Clock *clock = &e->clocks[stream];
  e->now++;
  list_accesses(e, a, &e->accesses);
  int last = meet_transfers(e, stream);
  if (last > clock->done[COMMUNICATION]) {
    int transfer = e->transfer_of[last];
    PlanTransferOp *await = e->awaits[transfer];
    if (!await) bug("rank %d: %s touches %s, which nothing waits for", e->rank->rank, e->plan->tasks[a->task].name, e->plan->values[e->plan->transfers[transfer].value]);
    await->waits |= 1 << stream;
    await->implied_by = -1;
    learn_of_transfer(e, stream, transfer);
  }
  for (int k = 0; k < e->accesses.n; k++)
    if (e->needed[k]) imply_by_order(e, e->needed[k], clock->by);
  clock->done[stream] = e->now;
}

static void issue(Events *e, int n, const PlanTransferOp *ops, int *last_told) {
  for (int i = 0; i < n; i++) {
    PlanTransferOp *op = (PlanTransferOp *)&ops[i]; /* the plan is still ours */
    if (op->op == PP_POST_SEND || op->op == PP_POST_RECEIVE) {
      issue_post(e, op, last_told);
    } else {
      op->waits = 0, op->implied_by = -1;
      e->awaits[op->transfer] = op;
    }
  }
}

static void walk(Events *e) {
  int last_told = -1; /* the transfer before which the communication stream waited last */
  for (int i = 0; i < e->rank->n_actions; i++) {
    const PlanAction *a = &e->rank->actions[i];
    if (a->streams & PP_FORK) learn(&e->clocks[PP_STREAM_SECOND], &e->clocks[PP_STREAM_COMPUTE]);
    issue(e, a->n_before, a->before, &last_told);
    run_action(e, a);
    issue(e, a->n_after, a->after, &last_told);
    if (a->streams & PP_JOIN) learn(&e->clocks[PP_STREAM_COMPUTE], &e->clocks[PP_STREAM_SECOND]);
  }
}

/* --- waits that came in behind their time ---------------------------------------------------------------------- */

static void drop_known(Events *e, int n, const PlanTransferOp *ops) {
  for (int i = 0; i < n; i++) {
    PlanTransferOp *op = (PlanTransferOp *)&ops[i];
    for (int s = 0; s < PP_COMPUTE_STREAMS; s++) {
      if (op->op < PP_AWAIT_RECEIVE || !(op->waits >> s & 1)) continue;
      Clock *clock = &e->clocks[s];
      if (clock->done[COMMUNICATION] < e->posted[op->transfer]) {
        learn_of_transfer(e, s, op->transfer);
        continue;
      }
      op->waits &= ~(1 << s);
      if (!op->waits) op->implied_by = clock->by;
    }
  }
}

static void walk_again(Events *e) {
  memset(e->clocks, 0, sizeof e->clocks);
  for (int i = 0; i < e->rank->n_actions; i++) {
    const PlanAction *a = &e->rank->actions[i];
    if (a->streams & PP_FORK) learn(&e->clocks[PP_STREAM_SECOND], &e->clocks[PP_STREAM_COMPUTE]);
    drop_known(e, a->n_before, a->before);
    drop_known(e, a->n_after, a->after);
    if (a->streams & PP_JOIN) learn(&e->clocks[PP_STREAM_COMPUTE], &e->clocks[PP_STREAM_SECOND]);
  }
}

/* --- entry ---------------------------------------------------------------------------------------------------- */

static void start_rank(Events *e, const PlanRank *rank) {
  int n_ops = 0, most = 0;
  e->rank = rank;
  for (int i = 0; i < rank->n_actions; i++) {
    const Uses *u = &e->uses[rank->actions[i].task];
    int n = e->plan->tasks[rank->actions[i].task].n_arguments + u->outputs.n + 3;
    if (n > most) most = n;
    n_ops += rank->actions[i].n_before + rank->actions[i].n_after;
  }
  e->n_pieces = e->now = 0;
  memset(e->clocks, 0, sizeof e->clocks);
  e->transfer_of = arena_alloc_array(e->arena, (size_t)(rank->n_actions + n_ops) + 1, sizeof *e->transfer_of);
  e->needed = arena_alloc_array(e->arena, (size_t)most, sizeof *e->needed);
  e->accesses = (Accesses){0};
  VEC_RESERVE(e->arena, &e->accesses, most);
  cut_memory(e, n_ops);
}

bool events_run(Plan *plan) {
  Arena *job = arena_create();
  Uses *uses = arena_alloc_array(job, (size_t)plan->n_tasks, sizeof *uses);
  for (int i = 0; i < plan->n_tasks; i++) uses[i] = task_uses(&plan->tasks[i], job);
  size_t n = (size_t)plan->n_transfers;
  Events e = {.plan = plan, .uses = uses, .arena = arena_create(), .behind = arena_alloc_array(job, n, sizeof *e.behind),
              .posted = arena_alloc_array(job, n, sizeof *e.posted), .awaits = arena_alloc_array(job, n, sizeof *e.awaits)};
  for (int r = 0; r < plan->n_ranks; r++) {
    start_rank(&e, &plan->ranks[r]);
    place_actions(&e, (PlanAction *)plan->ranks[r].actions);
    walk(&e);
    walk_again(&e);
    arena_reset(e.arena);
  }
  arena_destroy(e.arena);
  arena_destroy(job);
  return true;
}

/* --- for dumps ------------------------------------------------------------------------------------------------ */

static int64_t note_waits(int64_t *numbers, int64_t n, int n_ops, const PlanTransferOp *ops) {
  for (int i = 0; i < n_ops; i++) {
    numbers[2 * n] = ops[i].waits;
    numbers[2 * n++ + 1] = ops[i].implied_by;
  }
  return n;
}

/* `waits`: two numbers for each of the rank's `ops`; `streams`: one for each action, when there are blocks. */
static void annotate_rank(Ir *ir, Arena *arena, Op op, const PlanRank *rank) {
  int64_t n = 0, n_ops = 0;
  bool blocks = false;
  op_ints(arena, op, "ops", &n_ops);
  int64_t *numbers = arena_alloc_array(arena, 2 * (size_t)(n_ops / 3), sizeof *numbers);
  int64_t *streams = arena_alloc_array(arena, (size_t)rank->n_actions, sizeof *streams);
  for (int i = 0; i < rank->n_actions; i++) {
    const PlanAction *a = &rank->actions[i];
    n = note_waits(numbers, n, a->n_before, a->before);
    n = note_waits(numbers, n, a->n_after, a->after);
    streams[i] = a->streams;
    blocks |= a->streams != 0;
  }
  op_set_ints(ir, op, "waits", 2 * n, numbers);
  if (blocks) op_set_ints(ir, op, "streams", rank->n_actions, streams);
}

void events_annotate(Ir *ir, const Plan *plan) {
  Arena *arena = arena_create();
  OpVec ranks = ir_ops(arena, ir_top(ir), OP_RANK);
  for (int i = 0; i < ranks.n; i++) annotate_rank(ir, arena, ranks.at[i], &plan->ranks[op_int(ranks.at[i], "rank", 0)]);
  arena_destroy(arena);
}
