/* The proof's part on memory. In: the items of a rank, and when its events touch them. Out: errors.
 * Items that live at the same time don't overlap. A received item lives from its post, a sent
 * one, in the window, until its send has been awaited, a frame while tasks use a field of it. A new
 * parameter is received only behind the last read of the old one. n log n. */
#include <stddef.h>
#include <string.h>

#include "compiler/base/sort.h"
#include "compiler/items.h"
#include "compiler/progress.h"

typedef struct {
  int item;
  int64_t offset, end_offset;
  int64_t first, last; /* events */
} Life;

typedef struct {
  Proof *p;
  int r;
  const RankInfo *rank;
  Arena *arena;
  int n_items;
  const int64_t *items;
  Life *lives;      /* [n_items] */
  Table values;     /* of VALUE items */
  int *frames;      /* [2][n_stages][n_microbatches] item + 1 */
  int *workspaces;  /* [n_actions] item + 1 */
} Bytes;

static const int64_t *item_of(const Bytes *b, int item) { return &b->items[ITEM_NUMBERS * (int64_t)item]; }

static void index_items(Bytes *b) {
  Proof *p = b->p;
  b->values = proof_table_create(p, b->arena);
  b->lives = arena_alloc_array(b->arena, (size_t)b->n_items, sizeof *b->lives);
  b->workspaces = arena_alloc_array(b->arena, (size_t)b->rank->n_actions, sizeof *b->workspaces);
  b->frames = arena_alloc_array(b->arena, 2 * (size_t)p->n_stages * (size_t)p->n_microbatches, sizeof *b->frames);
  for (int i = 0; i < b->n_items; i++)
    if (item_of(b, i)[0] == ITEM_VALUE) proof_table_add_row(&b->values, (int)item_of(b, i)[1]);
  proof_table_close(p, b->arena, &b->values);
  for (int i = 0; i < b->n_items; i++) {
    const int64_t *x = item_of(b, i);
    bool lasts = item_is_lasting((ItemKind)x[0]);
    b->lives[i] = (Life){i, x[4], x[4] + x[5], lasts ? -1 : b->rank->n_events, lasts ? b->rank->n_events : -1};
    if (x[0] == ITEM_VALUE) *proof_table_at(p, &b->values, (int)x[1], (int)x[2]) = i + 1;
    if (x[0] == ITEM_WORKSPACE) b->workspaces[x[1]] = i + 1;
    if (x[0] == ITEM_FRAME) b->frames[x[1] * p->n_microbatches + x[2]] = i + 1;
    if (x[0] == ITEM_WEIGHT_FRAME) b->frames[(p->n_stages + x[1]) * p->n_microbatches + x[2]] = i + 1;
    if (x[4] % PP_ALIGNMENT || x[4] < 0 || x[4] + x[5] > b->rank->bytes[x[3] == PP_WINDOW])
      proof_fail(p, proof_line(b->rank, 0), "rank %d: item %d lies outside its space or is not aligned", b->r, i);
  }
}

/* The item of a value on this rank: its own, that of a value whose bytes it shares, or a frame; -1 when
 * it lies in something that lives in all steps. */
static int find_item(const Bytes *b, int value, int microbatch) {
  const Proof *p = b->p;
  for (int v = value; v >= 0; v = p->same_bytes[v]) {
    const int *item = proof_table_at(p, &b->values, v, p->prepared[v] ? -1 : microbatch);
    if (item && *item) return *item - 1;
  }
  int stage = p->maker_stage[value];
  if (microbatch < 0 || p->stage_ranks[stage] != b->r) return -1;
  return b->frames[((p->by_fwd[value] ? 0 : p->n_stages) + stage) * p->n_microbatches + microbatch] - 1;
}

static void live(Bytes *b, int item, int first, int last) {
  if (item < 0) return;
  Life *x = &b->lives[item];
  if (first < x->first) x->first = first;
  if (last > x->last) x->last = last;
}

static void live_in_actions(Bytes *b) {
  const RankInfo *rank = b->rank;
  for (int a = 0; a < rank->n_actions; a++) {
    const TaskInfo *task = proof_task(b->p, rank, a);
    int microbatch = (int)rank->actions[3 * (int64_t)a + 2], from = a, to = a;
    if (rank->overlaps && rank->overlaps[a] >= 0) {
      while (from > 0 && rank->overlaps[from - 1] == rank->overlaps[a]) from--;
      while (to + 1 < rank->n_actions && rank->overlaps[to + 1] == rank->overlaps[a]) to++;
    }
    int first = rank->event_of[from], last = rank->event_of[to];
    for (int k = 0; k < task->n_in; k++) live(b, find_item(b, (int)task->in[k], microbatch), first, last);
    for (int k = 0; k < task->n_out; k++) live(b, find_item(b, (int)task->out[k], microbatch), first, last);
    live(b, b->workspaces[a] - 1, first, last);
  }
}

static void live_in_transfers(Bytes *b) {
  for (int k = 0; k < b->rank->n_posts; k++) {
    const TransferInfo *t = proof_posted(b->p, b->rank, k);
    int item = find_item(b, t->value, t->microbatch);
    if (t->from == b->r && item >= 0 && item_of(b, item)[3] != PP_WINDOW)
      proof_fail(b->p, proof_line(b->rank, t->made), "rank %d sends %s from outside its window", b->r, proof_transfer(b->p, b->rank->posts[k]));
    if (t->from == b->r) live(b, item, t->events[PP_POST_SEND], t->events[PP_AWAIT_SEND]);
    if (t->to == b->r) live(b, item, t->events[PP_POST_RECEIVE], t->events[PP_AWAIT_RECEIVE]);
  }
}

static int by_first(const void *px, const void *py) {
  const Life *x = px, *y = py;
  return x->first != y->first ? (x->first < y->first ? -1 : 1) : x->item - y->item;
}

/* The bytes of a space, cut where items begin or end, and until which event each piece is taken. A tree of
 * maxima over the pieces: `most` of what lies under a node, `all` of what was entered for the whole node. */
typedef struct {
  int64_t *edges;
  int n;
  int64_t *all, *most; /* [2n], the pieces from n on */
} Pieces;

typedef struct {
  int64_t offset;
} Edge;

static int by_offset(const void *px, const void *py) {
  const Edge *x = px, *y = py;
  return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static Pieces cut_space(Arena *arena, const Life *lives, size_t n) {
  Edge *edges = arena_alloc_array(arena, 2 * n, sizeof *edges);
  for (size_t i = 0; i < n; i++) edges[2 * i].offset = lives[i].offset, edges[2 * i + 1].offset = lives[i].end_offset;
  sort_by_key(edges, 2 * n, sizeof *edges, 0, by_offset);
  Pieces p = {.edges = arena_alloc_array(arena, 2 * n, sizeof *p.edges)};
  for (size_t i = 0; i < 2 * n; i++)
    if (!p.n || p.edges[p.n - 1] != edges[i].offset) p.edges[p.n++] = edges[i].offset;
  p.all = arena_alloc_array(arena, 2 * (size_t)p.n, sizeof *p.all);
  p.most = arena_alloc_array(arena, 2 * (size_t)p.n, sizeof *p.most);
  for (int i = 0; i < 2 * p.n; i++) p.all[i] = p.most[i] = INT64_MIN;
  return p;
}

static int piece_at(const Pieces *p, int64_t offset) {
  int low = 0, high = p->n;
  while (low < high) {
    int mid = (low + high) / 2;
    if (p->edges[mid] < offset) low = mid + 1;
    else high = mid;
  }
  return low;
}

static int64_t larger(int64_t x, int64_t y) { return x > y ? x : y; }

/* The last event at which any of the pieces [a, b) is taken. */
static int64_t taken_until(const Pieces *p, int a, int b) {
  int64_t last = INT64_MIN;
  for (int i = a + p->n; i >= 1; i /= 2) last = larger(last, p->all[i]);
  for (int i = b - 1 + p->n; i >= 1; i /= 2) last = larger(last, p->all[i]);
  for (a += p->n, b += p->n; a < b; a /= 2, b /= 2) {
    if (a % 2) last = larger(last, p->most[a++]);
    if (b % 2) last = larger(last, p->most[--b]);
  }
  return last;
}

static void enter_piece(Pieces *p, int node, int64_t last) {
  p->all[node] = larger(p->all[node], last);
  p->most[node] = larger(p->most[node], last);
}

static void raise_above(Pieces *p, int node) {
  for (node /= 2; node >= 1; node /= 2) p->most[node] = larger(p->all[node], larger(p->most[2 * node], p->most[2 * node + 1]));
}

static void take(Pieces *p, int a, int b, int64_t last) {
  int first = a + p->n, end = b - 1 + p->n;
  for (a += p->n, b += p->n; a < b; a /= 2, b /= 2) {
    if (a % 2) enter_piece(p, a++, last);
    if (b % 2) enter_piece(p, --b, last);
  }
  raise_above(p, first);
  raise_above(p, end);
}

static void report_clash(Bytes *b, const Life *lives, size_t n, const Life *x) {
  const Life *y = lives;
  while (y < lives + n && (y == x || y->last < x->first || y->first > x->first || y->end_offset <= x->offset || y->offset >= x->end_offset))
    y++;
  if (y == lives + n) bug("rank %d: item %d clashes with nothing", b->r, x->item);
  const int64_t *i = item_of(b, x->item), *k = item_of(b, y->item);
  proof_fail(b->p, proof_line(b->rank, proof_next_action(b->rank, x->first < 0 ? 0 : (int)x->first)),
       "rank %d: items %d (%d %d) and %d (%d %d) of kinds %d and %d live at the same time in the same bytes", b->r,
       x->item, (int)i[1], (int)i[2], y->item, (int)k[1], (int)k[2], (int)i[0], (int)k[0]);
}

/* In the order of their first events, each item finds its bytes free. */
static void check_space(Bytes *b, int space) {
  size_t n = 0;
  Life *lives = arena_alloc_array(b->arena, (size_t)b->n_items, sizeof *lives);
  for (int i = 0; i < b->n_items; i++)
    if (item_of(b, i)[3] == space && item_of(b, i)[5] > 0 && b->lives[i].first <= b->lives[i].last) lives[n++] = b->lives[i];
  sort_by_key(lives, n, sizeof *lives, offsetof(Life, first), by_first);
  Pieces pieces = cut_space(b->arena, lives, n);
  for (size_t i = 0; i < n; i++) {
    int from = piece_at(&pieces, lives[i].offset), to = piece_at(&pieces, lives[i].end_offset);
    if (taken_until(&pieces, from, to) >= lives[i].first) report_clash(b, lives, n, &lives[i]);
    take(&pieces, from, to, lives[i].last);
  }
}

static int last_read(const Bytes *b, const char *parameter) {
  int event = -1;
  for (int i = 0; i < b->p->n_stages * PP_TASK_KIND_COUNT; i++) {
    const TaskInfo *task = &b->p->tasks[i];
    bool reads = false;
    for (int k = 0; k < task->reads.n; k++) reads |= !strcmp(task->reads.at[k], parameter);
    if (!reads || b->p->stage_ranks[task->stage] != b->r) continue;
    for (int a = 0; a < b->rank->n_actions; a++)
      if (proof_task(b->p, b->rank, a) == task) event = b->rank->event_of[a] > event ? b->rank->event_of[a] : event;
  }
  return event;
}

/* A new value of a tied parameter overwrites the rank's copy. */
static void check_refreshes(Bytes *b) {
  for (int s = 0; s < b->p->n_stages; s++) {
    const TaskInfo *task = &b->p->tasks[s * PP_TASK_KIND_COUNT + PP_REFRESH];
    if (op_is_null(task->func) || b->p->stage_ranks[s] != b->r) continue;
    const char *names = op_string(b->arena, task->func, "pp.refresh");
    for (int k = 0; k < task->n_in && names; k++) {
      size_t length = strcspn(names, ",");
      int read = last_read(b, arena_strndup(b->arena, names, length));
      names = names[length] ? names + length + 1 : NULL;
      for (int i = 0; i < b->rank->n_posts; i++) {
        const TransferInfo *t = proof_posted(b->p, b->rank, i);
        if (t->to == b->r && t->value == task->in[k] && t->events[PP_POST_RECEIVE] <= read)
          proof_fail(b->p, proof_line(b->rank, 0), "rank %d receives %s while the old value is still read", b->r,
               proof_transfer(b->p, b->rank->posts[i]));
      }
    }
  }
}

void proof_check_bytes(Proof *p, int r) {
  Bytes b = {.p = p, .r = r, .rank = &p->ranks[r], .arena = arena_create()};
  int64_t n = 0;
  b.items = op_ints(b.arena, b.rank->op, "items", &n), b.n_items = (int)(n / ITEM_NUMBERS);
  index_items(&b);
  live_in_actions(&b);
  live_in_transfers(&b);
  check_space(&b, PP_ARENA);
  check_space(&b, PP_WINDOW);
  check_refreshes(&b);
  arena_destroy(b.arena);
}
