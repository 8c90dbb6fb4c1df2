/* The proof against what happens. Every library schedule, for chains, skips and tied weights: what is accepted runs to
 * the end on a machine that sends by rendezvous, over one to three channels per rank, for many seeds. And plans that are
 * broken in all the ways a compiler could break them: what is rejected as a cycle hangs on that machine; what is accepted
 * is still right, to the tag, on the machine of plan_test.h. A failing case prints its seed.
 *
 *   progress_test [ROUNDS]      of each mutation */
#include "compiler/plan_test.h"

/* --- the machine: operations alone ---------------------------------------------------------------------------- */

typedef struct {
  int n_events, n_posts;
  struct { int op, index; } *events; /* op -1: action */
} RigRank;

typedef struct {
  int n_ranks, n_transfers;
  RigRank *ranks;
  int (*ends)[2]; /* [n_transfers] sender, receiver */
  /* of a run */
  int *next, *n_posted, **posted; /* queues: what a rank has posted, in order; complete ones stay */
  int *head;                      /* [n_ranks] the first that isn't complete */
  bool *complete;
  uint8_t *n_ends;                /* [n_transfers] how many ends have posted it */
  uint64_t state;
} Rig;

static void read_rig_rank(Case *c, RigRank *rank, Op op) {
  int64_t n_actions = 0, n_ops = 0, next = 0;
  op_ints(c->arena, op, "actions", &n_actions);
  const int64_t *ops = op_ints(c->arena, op, "ops", &n_ops);
  rank->events = arena_alloc_array(c->arena, (size_t)(n_actions / 3 + n_ops / 3), sizeof *rank->events);
  for (int64_t position = 0; position < 2 * (n_actions / 3); position++) {
    for (; next < n_ops && ops[next] == position; next += 3) {
      rank->events[rank->n_events].op = (int)ops[next + 1];
      rank->events[rank->n_events++].index = (int)ops[next + 2];
    }
    if (position % 2 == 0) rank->events[rank->n_events++].op = -1;
  }
}

static Rig read_rig(Case *c) {
  OpVec ranks = ir_ops(c->arena, ir_top(c->ir), OP_RANK);
  int64_t n = 0;
  const int64_t *table = op_ints(c->arena, ir_ops(c->arena, ir_top(c->ir), OP_TRANSFERS).at[0], "table", &n);
  Rig rig = {.n_ranks = ranks.n, .n_transfers = (int)(n / 5)};
  size_t r = (size_t)ranks.n, t = (size_t)rig.n_transfers;
  rig.ranks = arena_alloc_array(c->arena, r, sizeof *rig.ranks);
  rig.ends = arena_alloc_array(c->arena, t, sizeof *rig.ends);
  for (int i = 0; i < rig.n_transfers; i++) rig.ends[i][0] = (int)table[5 * i + 2], rig.ends[i][1] = (int)table[5 * i + 3];
  rig.next = arena_alloc_array(c->arena, r, sizeof(int)), rig.n_posted = arena_alloc_array(c->arena, r, sizeof(int));
  rig.head = arena_alloc_array(c->arena, r, sizeof(int)), rig.posted = arena_alloc_array(c->arena, r, sizeof(int *));
  rig.complete = arena_alloc_array(c->arena, t, sizeof(bool)), rig.n_ends = arena_alloc_array(c->arena, t, 1);
  for (int i = 0; i < ranks.n; i++) {
    int own = (int)op_int(ranks.at[i], "rank", i);
    read_rig_rank(c, &rig.ranks[own], ranks.at[i]);
    rig.posted[own] = arena_alloc_array(c->arena, (size_t)rig.ranks[own].n_events, sizeof(int));
  }
  return rig;
}

static uint32_t draw(Rig *rig) {
  rig->state = rig->state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(rig->state >> 33);
}

static bool step_rig(Rig *rig, int r) {
  const RigRank *rank = &rig->ranks[r];
  if (rig->next[r] == rank->n_events) return false;
  int op = rank->events[rig->next[r]].op, t = rank->events[rig->next[r]].index;
  if (op == PP_POST_SEND || op == PP_POST_RECEIVE) rig->n_ends[t]++, rig->posted[r][rig->n_posted[r]++] = t;
  else if (op >= 0 && !rig->complete[t]) return false;
  rig->next[r]++;
  return true;
}

/* Is t among the first `channels` of a rank's queue that aren't complete? */
static bool has_channel(const Rig *rig, int r, int t, int channels) {
  for (int i = rig->head[r]; i < rig->n_posted[r] && channels > 0; i++) {
    if (rig->posted[r][i] == t) return true;
    if (!rig->complete[rig->posted[r][i]]) channels--;
  }
  return false;
}

static bool move_rig(Rig *rig, int r, int channels) {
  while (rig->head[r] < rig->n_posted[r] && rig->complete[rig->posted[r][rig->head[r]]]) rig->head[r]++;
  for (int i = rig->head[r], left = channels; i < rig->n_posted[r] && left > 0; i++) {
    int t = rig->posted[r][i];
    if (rig->complete[t]) continue;
    left--;
    if (rig->n_ends[t] < 2 || !has_channel(rig, rig->ends[t][rig->ends[t][0] == r], t, channels)) continue;
    return rig->complete[t] = true;
  }
  return false;
}

/* A seed chooses who moves first, for how long, and how late transfers come: often, or when nothing else can. */
static bool run_rig(Rig *rig, int channels, uint64_t seed) {
  size_t n = (size_t)rig->n_ranks;
  memset(rig->next, 0, n * sizeof(int)), memset(rig->head, 0, n * sizeof(int)), memset(rig->n_posted, 0, n * sizeof(int));
  memset(rig->complete, 0, (size_t)rig->n_transfers), memset(rig->n_ends, 0, (size_t)rig->n_transfers);
  rig->state = seed * 0x9e3779b97f4a7c15u + 1;
  uint32_t patience = draw(rig) % 4 ? draw(rig) % 64 : 1u << 30, burst = 1 + draw(rig) % 20;
  for (bool moved = true; moved;) {
    moved = false;
    int first = (int)(draw(rig) % n);
    for (int k = 0; k < rig->n_ranks; k++)
      for (uint32_t left = draw(rig) % burst + 1; left > 0 && step_rig(rig, (first + k) % rig->n_ranks); left--) moved = true;
    if (!moved || draw(rig) % (patience + 1) == 0)
      for (int k = 0; k < rig->n_ranks; k++) moved |= move_rig(rig, (first + k) % rig->n_ranks, channels);
  }
  for (int r = 0; r < rig->n_ranks; r++)
    if (rig->next[r] < rig->ranks[r].n_events) return false;
  for (int t = 0; t < rig->n_transfers; t++)
    if (!rig->complete[t]) return false;
  return true;
}

/* --- what is accepted ends --------------------------------------------------------------------------------------- */

static const char skip[] = "testdata/models/skip.pp", mlp[] = "testdata/models/mlp.pp", encdec[] = "testdata/models/encdec.pp";

typedef VEC(const char *) Names;

/* The schedules of the library. */
static Names library_schedules(Arena *arena) {
  Names names = {0};
  Diag *diag = diag_create();
  const DslProgram *program = dsl_load_text(arena, diag, "x.pp", "use schedules;");
  const AstFile *file = program ? program->files.at[1] : NULL;
  for (int i = 0; file && i < file->items.n; i++)
    if (file->items.at[i]->kind == ITEM_SCHEDULE) VEC_PUSH(arena, &names, file->items.at[i]->name);
  diag_destroy(diag);
  return names;
}

/* False when the schedule is not for these numbers. */
static bool lay_out(Case *c, ScheduledActions *out_list) {
  Loc line = {0, 1, 1};
  bool ok = program_run_schedule(c->program, c->ranks, c->stages, c->microbatches, out_list) &&
            schedule_build(c->ir, out_list, line, line);
  if (!ok) return false;
  CHECK(transfers_run(c->ir) && fuse_run(c->ir, true) && memory_run(c->ir));
  return true;
}

static bool open_laid_out(Case *out, const char *model, const char *schedule, const char *precision, int stages, int ranks, int microbatches) {
  *out = open_any(model, schedule, precision, stages, ranks, microbatches, 2);
  ScheduledActions list = {0};
  return lay_out(out, &list);
}

enum { SEEDS = 1000 };

static void run_seeds(Case *c, const char *model, const char *schedule, int seeds) {
  Rig rig = read_rig(c);
  for (int seed = 0; seed < seeds; seed++) {
    bool ended = run_rig(&rig, 1 + seed % 3, (uint64_t)seed);
    CHECK(ended);
    if (!ended) {
      printf("%s under %s, %d ranks, %d stages, %d microbatches: seed %d\n", model, schedule, c->ranks, c->stages,
             c->microbatches, seed);
      return;
    }
  }
}

/* True when the schedule is for these numbers. */
static bool try_case(const char *model, const char *schedule, int chunks, int ranks, int microbatches) {
  Case c;
  bool taken = open_laid_out(&c, model, schedule, NULL, chunks * ranks, ranks, microbatches);
  if (taken) {
    CHECK(progress_run(c.ir));
    run_seeds(&c, model, schedule, SEEDS);
  }
  Str text = {0};
  diag_flush_to(c.diag, &text);
  str_free(&text);
  close_case(&c);
  return taken;
}

static void accepted_plans_end(void) {
  static const char *const models[] = {mlp, skip, encdec};
  Arena *arena = arena_create();
  Names names = library_schedules(arena);
  CHECK(names.n >= 3);
  for (int i = 0; i < names.n; i++) {
    int n = 0;
    for (int ranks = 2; ranks <= 4; ranks++)
      for (int k = 0; k < 3; k++) {
        int microbatches[] = {ranks - 1, 2 * ranks, 3 * ranks + 1};
        const char *model = models[(i + ranks + k) % 3];
        n += try_case(model, names.at[i], 1, ranks, microbatches[k]) ||
             try_case(model, names.at[i], 2, ranks, microbatches[k]);
      }
    CHECK(n > 0);
    if (n == 0) printf("%s was never taken\n", names.at[i]);
  }
  arena_destroy(arena);
}

/* --- broken plans ------------------------------------------------------------------------------------------------ */

/* The operations of one rank as rows, to be changed. */
typedef struct {
  Op op;
  int64_t n, *ops; /* rows of 3 */
} Ops;

static Ops take_ops(Case *c, int r) {
  OpVec ranks = ir_ops(c->arena, ir_top(c->ir), OP_RANK);
  Ops o = {.op = ranks.at[r]};
  int64_t n = 0;
  const int64_t *ops = op_ints(c->arena, o.op, "ops", &n);
  o.n = n / 3;
  o.ops = arena_alloc_array(c->arena, (size_t)n + 3, sizeof *o.ops);
  memcpy(o.ops, ops, (size_t)n * sizeof *ops);
  return o;
}

static void put_ops(Case *c, const Ops *o) { op_set_ints(c->ir, o->op, "ops", 3 * o->n, o->ops); }

/* Row `from` goes to `to`, and takes the position of the row that it comes to stand by. */
static void move_row(Ops *o, int64_t from, int64_t to) {
  int64_t row[3] = {o->ops[3 * to], o->ops[3 * from + 1], o->ops[3 * from + 2]};
  if (from < to) memmove(&o->ops[3 * from], &o->ops[3 * from + 3], 3 * (size_t)(to - from) * sizeof *o->ops);
  else memmove(&o->ops[3 * to + 3], &o->ops[3 * to], 3 * (size_t)(from - to) * sizeof *o->ops);
  memcpy(&o->ops[3 * to], row, sizeof row);
}

static int64_t find_row(const Ops *o, int op) {
  int64_t start = random_below((int)o->n);
  for (int64_t k = 0; k < o->n; k++)
    if (o->ops[3 * ((start + k) % o->n) + 1] == op) return (start + k) % o->n;
  return -1;
}

static int64_t near_row(const Ops *o, int64_t row, bool later) {
  int64_t far = 1 + random_below(random_below(3) ? 3 : (int)o->n);
  int64_t to = later ? row + far : row - far;
  return to < 0 ? 0 : to >= o->n ? o->n - 1 : to;
}

static void move_op(Case *c, int r, int op, bool later) {
  Ops o = take_ops(c, r);
  int64_t row = find_row(&o, op);
  if (row < 0) return;
  move_row(&o, row, near_row(&o, row, later));
  put_ops(c, &o);
}

static void swap_posts(Case *c, int r) {
  Ops o = take_ops(c, r);
  int64_t start = random_below((int)o.n), last = -1;
  for (int64_t i = start; i < o.n; i++) {
    if (o.ops[3 * i + 1] != PP_POST_SEND && o.ops[3 * i + 1] != PP_POST_RECEIVE) continue;
    if (last >= 0) {
      for (int k = 1; k < 3; k++) {
        int64_t x = o.ops[3 * last + k];
        o.ops[3 * last + k] = o.ops[3 * i + k], o.ops[3 * i + k] = x;
      }
      break;
    }
    last = i;
  }
  put_ops(c, &o);
}

static void drop_op(Case *c, int r) {
  Ops o = take_ops(c, r);
  int64_t row = random_below((int)o.n);
  memmove(&o.ops[3 * row], &o.ops[3 * row + 3], 3 * (size_t)(o.n - row - 1) * sizeof *o.ops);
  o.n--;
  put_ops(c, &o);
}

static void repeat_op(Case *c, int r) {
  Ops o = take_ops(c, r);
  int64_t row = random_below((int)o.n);
  memmove(&o.ops[3 * row + 3], &o.ops[3 * row], 3 * (size_t)(o.n - row) * sizeof *o.ops);
  o.n++;
  put_ops(c, &o);
}

static void rename_op(Case *c, int r) {
  Ops o = take_ops(c, r);
  int64_t row = random_below((int)o.n), other = random_below((int)o.n);
  o.ops[3 * row + 2] = random_below(8) ? o.ops[3 * other + 2] : random_below(2) ? -1 : 1 << 20;
  put_ops(c, &o);
}

static Op table_op(Case *c) { return ir_ops(c->arena, ir_top(c->ir), OP_TRANSFERS).at[0]; }

/* A number of one row of the table; now and then one that can't be. */
static void change_table(Case *c) {
  int64_t n = 0;
  const int64_t *table = op_ints(c->arena, table_op(c), "table", &n);
  int64_t *copy = arena_alloc_array(c->arena, (size_t)n, sizeof *copy);
  memcpy(copy, table, (size_t)n * sizeof *copy);
  int64_t row = random_below((int)(n / 5)), column = random_below(5), other = random_below((int)(n / 5));
  copy[5 * row + column] = random_below(3) ? table[5 * other + column] : (int64_t[]){-1, -2, 1 << 20, 0}[random_below(4)];
  op_set_ints(c->ir, table_op(c), "table", n, copy);
}

/* Two neighbours change places in the total order, everywhere. */
static void reorder_table(Case *c) {
  int64_t n = 0;
  const int64_t *table = op_ints(c->arena, table_op(c), "table", &n);
  int64_t *copy = arena_alloc_array(c->arena, (size_t)n, sizeof *copy);
  memcpy(copy, table, (size_t)n * sizeof *copy);
  int64_t row = random_below((int)(n / 5) - 1);
  memcpy(&copy[5 * row], &table[5 * row + 5], 5 * sizeof *copy), memcpy(&copy[5 * row + 5], &table[5 * row], 5 * sizeof *copy);
  op_set_ints(c->ir, table_op(c), "table", n, copy);
  for (int r = 0; r < c->ranks; r++) {
    Ops o = take_ops(c, r);
    for (int64_t i = 0; i < o.n; i++)
      if (o.ops[3 * i + 2] == row || o.ops[3 * i + 2] == row + 1) o.ops[3 * i + 2] = 2 * row + 1 - o.ops[3 * i + 2];
    put_ops(c, &o);
  }
}

static void swap_actions(Case *c, int r) {
  OpVec ranks = ir_ops(c->arena, ir_top(c->ir), OP_RANK);
  int64_t n = 0;
  const int64_t *actions = op_ints(c->arena, ranks.at[r], "actions", &n);
  int64_t *copy = arena_alloc_array(c->arena, (size_t)n, sizeof *copy);
  memcpy(copy, actions, (size_t)n * sizeof *copy);
  int64_t row = random_below((int)(n / 3)), other = random_below((int)(n / 3));
  memcpy(&copy[3 * row], &actions[3 * other], 3 * sizeof *copy);
  if (random_below(4)) memcpy(&copy[3 * other], &actions[3 * row], 3 * sizeof *copy); /* else it runs twice */
  op_set_ints(c->ir, ranks.at[r], "actions", n, copy);
}

static void pair_actions(Case *c, int r) {
  OpVec ranks = ir_ops(c->arena, ir_top(c->ir), OP_RANK);
  int64_t n = 0;
  op_ints(c->arena, ranks.at[r], "actions", &n);
  int64_t *overlaps = arena_alloc_array(c->arena, (size_t)(n / 3), sizeof *overlaps);
  for (int64_t i = 0; i < n / 3; i++) overlaps[i] = -1;
  int64_t first = random_below((int)(n / 3) - 1);
  overlaps[first] = overlaps[first + 1] = 0;
  op_set_ints(c->ir, ranks.at[r], "overlaps", n / 3, overlaps);
}

static void move_item(Case *c, int r) {
  OpVec ranks = ir_ops(c->arena, ir_top(c->ir), OP_RANK);
  int64_t n = 0;
  const int64_t *items = op_ints(c->arena, ranks.at[r], "items", &n);
  int64_t *copy = arena_alloc_array(c->arena, (size_t)n, sizeof *copy);
  memcpy(copy, items, (size_t)n * sizeof *copy);
  int64_t row = random_below((int)(n / 6)), other = random_below((int)(n / 6));
  copy[6 * row + 4] = items[6 * other + 4];
  op_set_ints(c->ir, ranks.at[r], "items", n, copy);
}

enum { N_MUTATIONS = 16 };

static void mutate(Case *c, int kind, int r) {
  switch (kind) {
  case 0: swap_posts(c, r); break;
  case 1: move_op(c, r, PP_POST_RECEIVE, true); break;
  case 2: move_op(c, r, PP_POST_RECEIVE, false); break;
  case 3: move_op(c, r, PP_POST_SEND, true); break;
  case 4: move_op(c, r, PP_POST_SEND, false); break;
  case 5: move_op(c, r, PP_AWAIT_RECEIVE, true); break;
  case 6: move_op(c, r, PP_AWAIT_RECEIVE, false); break;
  case 7: move_op(c, r, PP_AWAIT_SEND, true); break;
  case 8: move_op(c, r, PP_AWAIT_SEND, false); break;
  case 9: drop_op(c, r); break;
  case 10: repeat_op(c, r); break;
  case 11: rename_op(c, r); break;
  case 12: change_table(c); break;
  case 13: reorder_table(c); break;
  case 14: swap_actions(c, r); break;
  default: random_below(2) ? move_item(c, r) : pair_actions(c, r); break;
  }
}

typedef struct {
  int accepted, cycles, others;
} Verdicts;

static void judge(Case *c, int kind, uint64_t seed, Verdicts *v) {
  Str text = {0};
  diag_start_phase(c->diag);
  bool accepted = progress_run(c->ir);
  diag_flush_to(c->diag, &text);
  bool cycle = strstr(str_text(&text), "this can't finish") != NULL;
  bool right = true;
  if (accepted) {
    CompileOptions options = {.threads = 1};
    const Plan *plan = plan_build(c->ir, c->arena, &options);
    Rig rig = read_rig(c);
    right = plan && run_plan(c, plan);
    for (int s = 0; s < 20 && right; s++) right = run_rig(&rig, 1 + s % 3, (uint64_t)s);
  } else if (cycle) {
    Rig rig = read_rig(c);
    for (int s = 0; s < 20 && right; s++) right = !run_rig(&rig, 1, (uint64_t)s);
  } else {
    CHECK(strstr(str_text(&text), "error: ") != NULL);
  }
  *(accepted ? &v->accepted : cycle ? &v->cycles : &v->others) += 1;
  CHECK(right);
  if (!right) printf("mutation %d of state %llu is judged wrong: %s\n%s", kind, (unsigned long long)seed, accepted ? "accepted" : "rejected", str_text(&text));
  str_free(&text);
}

static void one_mutation(const char *model, const char *schedule, const char *precision, int stages, int ranks, int microbatches, int kind, Verdicts *v) {
  Case c;
  uint64_t seed = random_state;
  bool laid_out = open_laid_out(&c, model, schedule, precision, stages, ranks, microbatches);
  CHECK(laid_out);
  for (int times = 1 + random_below(4) / 3; laid_out && times > 0; times--) mutate(&c, kind, random_below(ranks));
  if (laid_out) judge(&c, kind, seed, v);
  close_case(&c);
}

static int rounds = 20; /* of each mutation; more on the command line */

static void broken_plans_are_judged_right(void) {
  static const struct { const char *model, *schedule, *precision; int stages, ranks, microbatches; } cases[] = {
      {mlp, "one_f_one_b", NULL, 3, 3, 4}, {mlp, "interleaved_1f1b", "bf16", 4, 2, 4}, {skip, "zb_h1", NULL, 3, 3, 3},
      {skip, "zb_v", "bf16", 4, 2, 3}, {encdec, "gpipe", NULL, 4, 2, 2}};
  Verdicts of_kind[N_MUTATIONS] = {0}, all = {0};
  for (int i = 0; i < rounds * N_MUTATIONS; i++) {
    int k = i % 5, kind = i % N_MUTATIONS;
    one_mutation(cases[k].model, cases[k].schedule, cases[k].precision, cases[k].stages, cases[k].ranks, cases[k].microbatches, kind, &of_kind[kind]);
  }
  for (int k = 0; k < N_MUTATIONS; k++) {
    all.accepted += of_kind[k].accepted, all.cycles += of_kind[k].cycles, all.others += of_kind[k].others;
    if (getenv("VERBOSE")) printf("mutation %2d: %d accepted, %d cycles, %d others\n", k, of_kind[k].accepted, of_kind[k].cycles, of_kind[k].others);
    CHECK(of_kind[k].accepted < rounds);
  }
  CHECK(all.accepted > 10 && all.cycles > 10 && all.others > 50);
}

int main(int argc, char **argv) {
  if (argc > 1) rounds = atoi(argv[1]);
  TEST(accepted_plans_end);
  TEST(broken_plans_are_judged_right);
  return test_end();
}
