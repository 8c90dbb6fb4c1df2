/* In: a CSV's actions, checked, and the transfers that it states. Out: errors, or none.
 *
 *   implied   A stage's forward sends to the next stage when that lives on another rank, its backward (or input
 *             half) to the one before. Each of these must be stated once at each end, and nothing else.
 *   placed    A SEND stands behind the action that makes the value, a RECV before the one that uses it.
 *   finishes  Under rendezvous with one channel per rank (docs/decisions/0001): the graph of actions and matched
 *             transfers has no cycle. Edges: action -> next of its rank; action -> transfer stated behind it, at
 *             either end; transfer -> next of the rank, at either end; transfer -> action that uses it; within a
 *             rank maker -> user. A cycle is printed as cells of the file, and only the cycle: the shortest
 *             through one of its nodes.
 * Linear in actions and transfers. It shares no code with `transfers` and `progress`, and changes nothing: what is
 * emitted has its transfers inferred. */
#include "compiler/stated.h"

#include "compiler/tasks.h"

enum { FEW = 4, MAX_NEEDS = 5 };

/* A transfer by what makes it: index of (direction, stage, microbatch). */
typedef struct {
  bool backward;
  int from, to, microbatch; /* stages */
} Message;

typedef struct {
  int message, rank, before; /* `before` as in StatedTransfer */
  int previous;              /* node of the transfer before it on that rank, -1 */
  const StatedTransfer *cell;
} End;

typedef struct {
  Diag *diag;
  Arena *arena;
  const StatedJob *job;
  int n_stages, n_microbatches, n_messages;
  const ScheduledActions *list;
  int *first;          /* [n_ranks + 1] index of each rank's first action */
  End (*ends)[2];      /* [n_messages] at the sender, at the receiver; cell null: not stated */
  int n_errors, n_told[STATED_COUNT + 1];
} Stated;

/* --- messages ------------------------------------------------------------------------------------------ */

static const ScheduledAction *action_at(const Stated *s, int stage, pp_task_kind kind, int microbatch) {
  int index = s->job->index->at[schedule_slot(s->job->job, stage, kind, microbatch)];
  return index ? &s->list->at[index - 1] : NULL;
}

/* The backward that uses a stage's gradient and makes that of the stage before. */
static const ScheduledAction *backward_at(const Stated *s, int stage, int microbatch) {
  const ScheduledAction *input = action_at(s, stage, PP_BWD_INPUT, microbatch);
  return input ? input : action_at(s, stage, PP_BWD, microbatch);
}

static int rank_of(const Stated *s, int stage) {
  return s->list->at[s->job->index->stage_first[stage] - 1].rank;
}

static int number_of(const Stated *s, const Message *m) {
  return (m->backward * s->n_stages + m->from) * s->n_microbatches + m->microbatch;
}

static Message message_at(const Stated *s, int number) {
  int stage = number / s->n_microbatches % s->n_stages;
  bool backward = number >= s->n_stages * s->n_microbatches;
  return (Message){backward, stage, backward ? stage - 1 : stage + 1, number % s->n_microbatches};
}

static Message message_of(const StatedTransfer *t) {
  bool backward = t->kind == STATED_SEND_B || t->kind == STATED_RECV_B;
  bool sends = t->kind == STATED_SEND_F || t->kind == STATED_SEND_B;
  int step = backward ? -1 : 1;
  return (Message){backward, sends ? t->stage : t->stage - step, sends ? t->stage + step : t->stage, t->microbatch};
}

static const ScheduledAction *maker_of(const Stated *s, const Message *m) {
  return m->backward ? backward_at(s, m->from, m->microbatch) : action_at(s, m->from, PP_FWD, m->microbatch);
}

static const ScheduledAction *user_of(const Stated *s, const Message *m) {
  return m->backward ? backward_at(s, m->to, m->microbatch) : action_at(s, m->to, PP_FWD, m->microbatch);
}

static bool is_carried(const Stated *s, const Message *m) {
  const bool *carries = m->backward ? s->job->backward : s->job->forward;
  return !carries || carries[m->from];
}

static bool is_implied(const Stated *s, const Message *m) {
  return m->to >= 0 && m->to < s->n_stages && rank_of(s, m->from) != rank_of(s, m->to) && is_carried(s, m);
}

static int place_of(const Stated *s, const ScheduledAction *a) { return (int)(a - s->list->at) - s->first[a->rank]; }

/* --- texts --------------------------------------------------------------------------------------------- */

static const char *cell_text(const Stated *s, const StatedTransfer *t) {
  return arena_printf(s->arena, "%d%s%d", t->stage, stated_kind_name(t->kind), t->microbatch);
}

static const char *action_text(const Stated *s, const ScheduledAction *a) {
  return arena_printf(s->arena, "%d%c%d", a->stage, tasks_kind_letter(a->kind), a->microbatch);
}

static StatedKind kind_of_end(const Message *m, bool receives) {
  if (m->backward) return receives ? STATED_RECV_B : STATED_SEND_B;
  return receives ? STATED_RECV_F : STATED_SEND_F;
}

/* --- the right ones ------------------------------------------------------------------------------------ */

/* Why no such transfer is implied; null: it is. */
static const char *why_foreign(const Stated *s, const StatedTransfer *t, const Message *m) {
  if (t->stage >= s->n_stages) return arena_printf(s->arena, "stages run from 0 to %d", s->n_stages - 1);
  if (t->microbatch >= s->n_microbatches) return arena_printf(s->arena, "microbatches run from 0 to %d", s->n_microbatches - 1);
  if (m->from < 0 || m->to < 0) return "no stage stands before stage 0";
  if (m->from >= s->n_stages || m->to >= s->n_stages) return arena_printf(s->arena, "stage %d is the last", t->stage);
  if (rank_of(s, t->stage) != t->rank) return arena_printf(s->arena, "stage %d lives on rank %d", t->stage, rank_of(s, t->stage));
  if (rank_of(s, m->from) == rank_of(s, m->to))
    return arena_printf(s->arena, "stages %d and %d live on one rank", m->from, m->to);
  if (!is_carried(s, m))
    return arena_printf(s->arena, "stage %d makes nothing that stage %d uses%s", m->from, m->to, m->backward ? " backward" : "");
  return NULL;
}

static void enter(Stated *s, const StatedTransfer *t) {
  Message m = message_of(t);
  const char *why = why_foreign(s, t, &m);
  if (why) {
    s->n_errors++;
    diag_error(s->diag, t->loc, "%s on rank %d: no such transfer is needed, for %s", cell_text(s, t), t->rank, why);
    return;
  }
  bool receives = t->kind == STATED_RECV_F || t->kind == STATED_RECV_B;
  End *end = &s->ends[number_of(s, &m)][receives];
  if (end->cell) {
    s->n_errors++;
    diag_error(s->diag, t->loc, "%s stands twice on rank %d", cell_text(s, t), t->rank);
    diag_note(s->diag, end->cell->loc, "the first is here");
    return;
  }
  *end = (End){.message = number_of(s, &m), .rank = t->rank, .before = t->before, .previous = -1, .cell = t};
}

static void check_end(Stated *s, const Message *m, const End *end, bool receives) {
  const ScheduledAction *maker = maker_of(s, m), *user = user_of(s, m), *own = receives ? user : maker;
  StatedKind kind = kind_of_end(m, receives);
  if (end->cell && (receives ? end->before <= place_of(s, own) : end->before > place_of(s, own))) return;
  s->n_errors++;
  if (s->n_told[kind]++ >= FEW) return;
  if (end->cell) {
    diag_error(s->diag, end->cell->loc, "%s on rank %d stands %s %s, which %s it", cell_text(s, end->cell), own->rank,
               receives ? "behind" : "before", action_text(s, own), receives ? "needs" : "makes");
    diag_note(s->diag, own->loc, "%s is here", action_text(s, own));
  } else {
    StatedTransfer t = {.stage = own->stage, .microbatch = own->microbatch, .kind = kind};
    diag_error(s->diag, own->loc, "rank %d never states %s: %s of rank %d sends to %s of rank %d", own->rank, cell_text(s, &t),
               action_text(s, maker), maker->rank, action_text(s, user), user->rank);
  }
}

static void check_implied(Stated *s) {
  for (int i = 0; i < s->n_messages; i++) {
    Message m = message_at(s, i);
    if (!is_implied(s, &m)) continue;
    check_end(s, &m, &s->ends[i][0], false);
    check_end(s, &m, &s->ends[i][1], true);
  }
}

/* --- the graph ----------------------------------------------------------------------------------------- */

/* Nodes: actions, an overlapped pair being its first member; behind them messages. */
typedef struct {
  int node;
  const End *end; /* of the waiting transfer, where it waits; null when an action waits */
} Need;

/* First and one behind last of the pair that action i stands in, or of itself. */
static int pair_begin(const Stated *s, int i) {
  const ScheduledAction *a = s->list->at;
  bool second = a[i].overlap >= 0 && i > 0 && a[i - 1].overlap == a[i].overlap;
  return second ? i - 1 : i;
}

static int pair_end(const Stated *s, int i) {
  const ScheduledAction *a = s->list->at;
  return a[i].overlap >= 0 && i + 1 < s->list->n && a[i + 1].overlap == a[i].overlap ? i + 2 : i + 1;
}

static int action_node(const Stated *s, const ScheduledAction *a) { return pair_begin(s, (int)(a - s->list->at)); }

/* What brings action i a value: a message, or the maker on its own rank. */
static int add_source(const Stated *s, const Message *m, Need *out, int n) {
  if (m->from < 0 || m->from >= s->n_stages || !is_carried(s, m)) return n;
  if (is_implied(s, m)) out[n++] = (Need){.node = s->list->n + number_of(s, m)};
  else out[n++] = (Need){.node = action_node(s, maker_of(s, m))};
  return n;
}

static int needs_of_action(const Stated *s, int node, Need out[MAX_NEEDS]) {
  int n = 0;
  for (int i = node; i < pair_end(s, node); i++) {
    const ScheduledAction *a = &s->list->at[i];
    Message forward = {false, a->stage - 1, a->stage, a->microbatch}, backward = {true, a->stage + 1, a->stage, a->microbatch};
    if (a->kind == PP_FWD) n = add_source(s, &forward, out, n);
    else if (a->kind != PP_BWD_WEIGHT) n = add_source(s, &backward, out, n);
  }
  if (node > s->first[s->list->at[node].rank]) out[n++] = (Need){.node = pair_begin(s, node - 1)};
  return n;
}

static int needs_of_message(const Stated *s, int number, Need out[MAX_NEEDS]) {
  int n = 0;
  for (int k = 0; k < 2; k++) {
    const End *end = &s->ends[number][k];
    if (end->previous >= 0) out[n++] = (Need){end->previous, end};
    if (end->before > 0) out[n++] = (Need){pair_begin(s, s->first[end->rank] + end->before - 1), end};
  }
  return n;
}

static int needs_of(const Stated *s, int node, Need out[MAX_NEEDS]) {
  return node < s->list->n ? needs_of_action(s, node, out) : needs_of_message(s, node - s->list->n, out);
}

static bool is_node(const Stated *s, int node) {
  if (node < s->list->n) return pair_begin(s, node) == node;
  return s->ends[node - s->list->n][0].cell != NULL;
}

static void link_transfers(Stated *s) {
  const StatedTransfers *all = &s->job->csv->transfers;
  for (int i = 0, previous = -1; i < all->n; i++) {
    const StatedTransfer *t = &all->at[i];
    Message m = message_of(t);
    if (i > 0 && all->at[i - 1].rank != t->rank) previous = -1;
    End *end = &s->ends[number_of(s, &m)][t->kind == STATED_RECV_F || t->kind == STATED_RECV_B];
    end->previous = previous;
    previous = s->list->n + number_of(s, &m);
  }
}

/* --- finishing ----------------------------------------------------------------------------------------- */

typedef struct {
  int n;
  int *left;        /* [n] needs that are not done; -1: no node */
  int *first, *next, *to; /* users of a node, as lists of edges */
} Graph;

static void add_edge(Graph *g, int edge, int from, int to) {
  g->to[edge] = to;
  g->next[edge] = g->first[from];
  g->first[from] = edge + 1;
}

static Graph build_graph(const Stated *s) {
  Graph g = {.n = s->list->n + s->n_messages};
  size_t n = (size_t)g.n;
  g.left = arena_alloc_array(s->arena, n, sizeof *g.left);
  g.first = arena_alloc_array(s->arena, n, sizeof *g.first);
  g.next = arena_alloc_array(s->arena, MAX_NEEDS * n, sizeof *g.next);
  g.to = arena_alloc_array(s->arena, MAX_NEEDS * n, sizeof *g.to);
  for (int node = 0, edge = 0; node < g.n; node++) {
    Need needs[MAX_NEEDS];
    g.left[node] = is_node(s, node) ? needs_of(s, node, needs) : -1;
    for (int k = 0; k < g.left[node]; k++) add_edge(&g, edge++, needs[k].node, node);
  }
  return g;
}

/* Takes away what can be done; the first node that is left, -1: none is. */
static int finish(const Stated *s, Graph *g) {
  int *ready = arena_alloc_array(s->arena, (size_t)g->n, sizeof *ready), n_ready = 0;
  for (int node = 0; node < g->n; node++)
    if (g->left[node] == 0) ready[n_ready++] = node;
  while (n_ready > 0) {
    int node = ready[--n_ready];
    for (int e = g->first[node]; e; e = g->next[e - 1])
      if (--g->left[g->to[e - 1]] == 0) ready[n_ready++] = g->to[e - 1];
  }
  for (int node = 0; node < g->n; node++)
    if (g->left[node] > 0) return node;
  return -1;
}

/* A node on a cycle: what is left needs something that is left. */
static int find_cycle(const Stated *s, const Graph *g, int node) {
  bool *seen = arena_alloc_array(s->arena, (size_t)g->n, sizeof *seen);
  while (!seen[node]) {
    Need needs[MAX_NEEDS];
    int n = needs_of(s, node, needs), k = 0;
    seen[node] = true;
    while (k < n && g->left[needs[k].node] <= 0) k++;
    if (k == n) bug("node %d waits for nothing", node);
    node = needs[k].node;
  }
  return node;
}

/* Breadth first over needs: towards[x] is the node from which x was met on the shortest way from `begin`. The last
 * node of the shortest cycle: the one that needs `begin`. */
static int search(const Stated *s, const Graph *g, int begin, int *towards) {
  int *queue = arena_alloc_array(s->arena, (size_t)g->n, sizeof *queue), n = 1;
  bool *met = arena_alloc_array(s->arena, (size_t)g->n, sizeof *met);
  queue[0] = begin;
  met[begin] = true;
  for (int i = 0; i < n; i++) {
    Need needs[MAX_NEEDS];
    for (int k = 0, count = needs_of(s, queue[i], needs); k < count; k++) {
      int node = needs[k].node;
      if (node == begin) return queue[i];
      if (g->left[node] <= 0 || met[node]) continue;
      met[node] = true;
      towards[node] = queue[i];
      queue[n++] = node;
    }
  }
  bug("node %d is on no cycle", begin);
}

static const char *node_text(const Stated *s, int node) {
  if (node < s->list->n) return action_text(s, &s->list->at[node]);
  const End *ends = s->ends[node - s->list->n];
  return arena_printf(s->arena, "%s of rank %d with %s of rank %d", cell_text(s, ends[0].cell), ends[0].rank,
                      cell_text(s, ends[1].cell), ends[1].rank);
}

/* "X waits for Y", at X: a transfer's cell where it waits. Y is `needed`, or an action before it on its rank. */
static void report_need(Stated *s, int node, int needed, int shown, bool is_first) {
  Need needs[MAX_NEEDS];
  int n = needs_of(s, node, needs), k = 0;
  while (k < n && needs[k].node != needed) k++;
  if (k == n) bug("node %d does not wait for %d", node, needed);
  const End *end = needs[k].end;
  const char *text;
  Loc loc;
  if (!end) {
    const ScheduledAction *a = &s->list->at[node];
    loc = a->loc;
    text = arena_printf(s->arena, needed < s->list->n ? "rank %d comes to %s only behind %s" : "rank %d needs for %s what comes by %s",
                        a->rank, action_text(s, a), node_text(s, shown));
  } else {
    loc = end->cell->loc;
    text = arena_printf(s->arena, needed < s->list->n ? "rank %d comes to %s only behind %s" : "on rank %d %s stands behind %s",
                        end->rank, cell_text(s, end->cell), node_text(s, shown));
  }
  if (is_first) diag_error(s->diag, loc, "the stated transfers can't finish when a send waits for its receive: %s", text);
  else diag_note(s->diag, loc, "%s", text);
}

/* Actions that only stand behind the one before them say nothing: a node is said to wait for the end of such a row. */
static bool is_passed(const Stated *s, int node, int needed) {
  return node < s->list->n && needed < s->list->n && s->list->at[node].rank == s->list->at[needed].rank;
}

static void report_cycle(Stated *s, const Graph *g, int begin) {
  int *towards = arena_alloc_array(s->arena, (size_t)g->n, sizeof *towards);
  int n = 1;
  int last = search(s, g, begin, towards);
  for (int node = last; node != begin; node = towards[node]) n++;
  int *cycle = arena_alloc_array(s->arena, (size_t)n, sizeof *cycle);
  for (int i = n - 1, node = last; i > 0; i--, node = towards[node]) cycle[i] = node;
  cycle[0] = begin;
  bool told = false;
  for (int i = 0; i < n; i++) {
    int needed = cycle[(i + 1) % n], k = i + 1;
    if (is_passed(s, cycle[i], needed)) continue;
    while (k < i + n && is_passed(s, cycle[k % n], cycle[(k + 1) % n])) k++;
    report_need(s, cycle[i], needed, cycle[k % n], !told);
    told = true;
  }
  if (!told) report_need(s, cycle[0], cycle[1 % n], cycle[1 % n], true);
}

static void check_finish(Stated *s) {
  link_transfers(s);
  Graph g = build_graph(s);
  int stuck = finish(s, &g);
  if (stuck < 0) return;
  s->n_errors++;
  report_cycle(s, &g, find_cycle(s, &g, stuck));
}

/* --- entry --------------------------------------------------------------------------------------------- */

bool stated_check(Diag *diag, Arena *arena, const StatedJob *job) {
  Stated s = {.diag = diag, .arena = arena, .job = job, .list = &job->csv->actions};
  s.n_stages = job->job->n_stages, s.n_microbatches = job->job->n_microbatches;
  s.n_messages = 2 * s.n_stages * s.n_microbatches;
  s.first = arena_alloc_array(arena, (size_t)job->job->n_ranks + 1, sizeof *s.first);
  for (int i = 0; i < s.list->n; i++) s.first[s.list->at[i].rank + 1]++;
  for (int r = 0; r < job->job->n_ranks; r++) s.first[r + 1] += s.first[r];
  s.ends = arena_alloc_array(arena, (size_t)s.n_messages, sizeof *s.ends);
  for (int i = 0; i < job->csv->transfers.n; i++) enter(&s, &job->csv->transfers.at[i]);
  check_implied(&s);
  if (s.n_errors == 0) check_finish(&s);
  return s.n_errors == 0;
}
