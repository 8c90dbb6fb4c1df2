/* The waits of every library schedule, for chains, skips and tied weights, and of schedules with overlap blocks
 * thrown in at random: the check finds all accesses ordered, and with any one wait taken away it names two that
 * aren't: none is there for nothing, and the check sees each of them. Around random blocks one in a hundred may be
 * needless; forks and joins often are, for transfers order what they would.
 *
 *   events_test [ROUNDS]      of random blocks */
#include "compiler/plan_test.h"

#define MODELS "testdata/models/"

static const char *const schedules[] = {"gpipe",     "one_f_one_b",      "eager_1f1b", "zb_h1",       "zb_h2",                   "looped_bfs", "interleaved_1f1b",
                                        "kimi_k2",   "interleaved_zero_bubble", "zb_v", "dualpipe_v", "v_min",                    "v_half"};
static const char *const models[] = {MODELS "mlp.pp", MODELS "skip.pp", MODELS "encdec.pp", MODELS "gpt2.pp"};

typedef struct {
  int plans, ops, waits, needless, blocks, forks_needed, joins_needed, refused;
} Totals;

/* With `*flags` less `bit` the check must name a pair; then they are put back. */
static bool is_missed(const Plan *plan, Arena *arena, int *flags, int bit) {
  *flags &= ~bit;
  const char *text = events_check(plan, arena);
  *flags |= bit;
  return text && strstr(text, "nothing orders ");
}

static void mutate_ops(const Plan *plan, Arena *arena, int n, const PlanTransferOp *ops, Totals *t) {
  for (int i = 0; i < n; i++) {
    PlanTransferOp *op = (PlanTransferOp *)&ops[i];
    t->ops++;
    for (int bit = 1; bit <= 2; bit *= 2) {
      if (!(op->waits & bit)) continue;
      t->waits++;
      t->needless += !is_missed(plan, arena, &op->waits, bit);
    }
    CHECK(op->waits || op->implied_by < plan->n_transfers);
  }
}

static void mutate(Plan *plan, Arena *arena, Totals *t) {
  for (int r = 0; r < plan->n_ranks; r++)
    for (int i = 0; i < plan->ranks[r].n_actions; i++) {
      PlanAction *a = (PlanAction *)&plan->ranks[r].actions[i];
      mutate_ops(plan, arena, a->n_before, a->before, t);
      mutate_ops(plan, arena, a->n_after, a->after, t);
      t->blocks += (a->streams & PP_JOIN) != 0;
      if (a->streams & PP_FORK) t->forks_needed += is_missed(plan, arena, &a->streams, PP_FORK);
      if (a->streams & PP_JOIN) t->joins_needed += is_missed(plan, arena, &a->streams, PP_JOIN);
    }
}

/* The plan of what has been laid out, with its waits. */
static void judge(Case *c, Totals *t) {
  CompileOptions options = {.threads = 1};
  Plan *plan = plan_build(c->ir, c->arena, &options);
  CHECK(events_run(plan));
  const char *text = events_check(plan, c->arena);
  CHECK(!text);
  if (text) printf("%s\n", text);
  mutate(plan, c->arena, t);
  t->plans++;
}

static bool lay_out(Case *c, const ScheduledActions *list) {
  Loc line = {0, 1, 1};
  return schedule_build(c->ir, list, line, line) && transfers_run(c->ir) && fuse_run(c->ir, true) && memory_run(c->ir) && progress_run(c->ir);
}

static void one_case(const char *model, const char *schedule, int stages, int ranks, int microbatches, bool with_blocks, Totals *t);

static void library_schedules(void) {
  Totals t = {0};
  for (size_t i = 0; i < sizeof schedules / sizeof *schedules; i++)
    for (int ranks = 2; ranks <= 4; ranks += 2) {
      const char *model = models[(i + (size_t)ranks / 2) % 4];
      one_case(model, schedules[i], 2 * ranks, ranks, ranks == 2 ? 6 : 4, false, &t);
      one_case(model, schedules[i], ranks, ranks, 5, false, &t);
    }
  if (getenv("VERBOSE")) printf("%d plans, %d operations, %d wait, %d blocks, forks %d, joins %d\n", t.plans, t.ops, t.waits, t.blocks, t.forks_needed, t.joins_needed);
  CHECK(t.plans > 25 && t.waits < t.ops * 3 / 4 && t.blocks > 5);
  CHECK(t.needless == 0 && t.forks_needed > 0 && t.joins_needed > 0);
}

/* Neighbours become members of a block: two to four of a rank, of different microbatches. */
static void throw_in_blocks(ScheduledActions *list) {
  int n = 0;
  for (int i = 0; i < list->n; i++) list->at[i].overlap = -1;
  for (int i = 0; i + 1 < list->n; i++) {
    int members = random_below(3) ? 2 : 3 + random_below(2);
    if (random_below(2) || list->at[i].microbatch == list->at[i + 1].microbatch) continue;
    for (int k = 0; k < members && i + k < list->n && list->at[i + k].rank == list->at[i].rank; k++) list->at[i + k].overlap = n;
    i += members - 1, n++;
  }
}

static void one_case(const char *model, const char *schedule, int stages, int ranks, int microbatches, bool with_blocks, Totals *t) {
  Case c = open_scheduled(model, schedule, stages, ranks, microbatches);
  ScheduledActions list = {0};
  bool taken = program_run_schedule(c.program, ranks, stages, microbatches, &list);
  if (taken && with_blocks) throw_in_blocks(&list);
  taken = taken && lay_out(&c, &list);
  if (taken) judge(&c, t);
  else t->refused++;
  Str text = {0};
  diag_flush_to(c.diag, &text);
  str_free(&text);
  close_case(&c);
}

static int rounds = 60;

static void random_blocks(void) {
  Totals t = {0};
  for (int i = 0; i < rounds; i++) one_case(models[i % 4], schedules[i % 6], 2, 1 + random_below(2), 2 + random_below(4), true, &t);
  if (getenv("VERBOSE")) printf("%d plans, %d refused, %d operations, %d wait, %d blocks, forks %d, joins %d\n", t.plans, t.refused, t.ops, t.waits, t.blocks, t.forks_needed, t.joins_needed);
  CHECK(t.plans > rounds / 4 && t.blocks > rounds / 2 && t.needless * 100 <= t.waits);
  CHECK(t.forks_needed > 0 && t.joins_needed > 0);
}

int main(int argc, char **argv) {
  if (argc > 1) rounds = atoi(argv[1]);
  TEST(library_schedules);
  TEST(random_blocks);
  return test_end();
}
