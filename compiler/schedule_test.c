/* From split tasks to the plan: schedules that are right are accepted and proved, broken ones rejected
 * with their place, and what was accepted runs to the end on a machine of tags: every 64 bytes of each
 * rank's memory carry the name of what was last written there, every read checks it, and transfers
 * complete as late as the rules allow, in the order of each rank, only when both ends have posted. */
#include "compiler/plan_test.h"

/* --- schedules ------------------------------------------------------------------------------------------ */

typedef struct {
  Case *c;
  ScheduledActions list;
} Maker;

/* Each action has a line of its own, to be found in messages. */
static void add(Maker *m, int rank, pp_task_kind kind, int stage, int microbatch) {
  Loc loc = {0, m->list.n + 1, 1};
  VEC_PUSH(m->c->arena, &m->list, (ScheduledAction){rank, stage, microbatch, kind, -1, loc, {0}});
}

static int smaller(int a, int b) { return a < b ? a : b; }

static ScheduledActions one_f_one_b(Case *c) {
  Maker m = {c, {0}};
  for (int r = 0; r < c->ranks; r++) {
    int warmup = smaller(c->microbatches, c->ranks - r - 1);
    for (int i = 0; i < warmup; i++) add(&m, r, PP_FWD, r, i);
    for (int i = 0; i < c->microbatches; i++) {
      if (warmup + i < c->microbatches) add(&m, r, PP_FWD, r, warmup + i);
      add(&m, r, PP_BWD, r, i);
    }
  }
  return m.list;
}

static ScheduledActions gpipe(Case *c, bool reversed) {
  Maker m = {c, {0}};
  for (int r = 0; r < c->ranks; r++) {
    int k = c->stages / c->ranks;
    for (int i = 0; i < c->microbatches; i++)
      for (int s = r * k; s < (r + 1) * k; s++) add(&m, r, PP_FWD, s, i);
    for (int i = 0; i < c->microbatches; i++)
      for (int s = (r + 1) * k - 1; s >= r * k; s--) add(&m, r, PP_BWD, s, reversed ? c->microbatches - 1 - i : i);
  }
  return m.list;
}

static ScheduledActions zb_h1(Case *c) {
  Maker m = {c, {0}};
  for (int r = 0; r < c->ranks; r++) {
    int f = 0, i = 0, w = 0;
    while (f < smaller(c->microbatches, c->ranks - 1 - r)) add(&m, r, PP_FWD, r, f++);
    while (i < c->microbatches) {
      if (f < c->microbatches) add(&m, r, PP_FWD, r, f++);
      add(&m, r, PP_BWD_INPUT, r, i++);
      if (i - w > r) add(&m, r, PP_BWD_WEIGHT, r, w++);
    }
    while (w < c->microbatches) add(&m, r, PP_BWD_WEIGHT, r, w++);
  }
  return m.list;
}

static void interleaved_forward(Maker *m, int r, int k, int group, int chunks) {
  int chunk = k / group % chunks, microbatch = k / (group * chunks) * group + k % group;
  add(m, r, PP_FWD, chunk * m->c->ranks + r, microbatch);
}

static void interleaved_backward(Maker *m, int r, int k, int group, int chunks) {
  int chunk = chunks - 1 - k / group % chunks, microbatch = k / (group * chunks) * group + k % group;
  add(m, r, PP_BWD, chunk * m->c->ranks + r, microbatch);
}

static ScheduledActions interleaved(Case *c) {
  Maker m = {c, {0}};
  int chunks = c->stages / c->ranks, rounds = c->microbatches / c->ranks > 1 ? c->microbatches / c->ranks : 1;
  int group = c->microbatches / rounds, n = c->microbatches * chunks;
  for (int r = 0; r < c->ranks; r++) {
    int warmup = smaller(n, 2 * (c->ranks - 1 - r) + (chunks - 1) * group);
    for (int k = 0; k < warmup; k++) interleaved_forward(&m, r, k, group, chunks);
    for (int k = 0; k < n - warmup; k++) {
      interleaved_forward(&m, r, warmup + k, group, chunks);
      interleaved_backward(&m, r, k, group, chunks);
    }
    for (int k = n - warmup; k < n; k++) interleaved_backward(&m, r, k, group, chunks);
  }
  return m.list;
}

/* Forwards ahead, then a forward and a backward (or its input half) in one block, as often as there are both. */
static ScheduledActions pairs(Case *c, bool halves) {
  Maker m = {c, {0}};
  int n_blocks = 0;
  for (int r = 0; r < c->ranks; r++) {
    int ahead = smaller(c->microbatches, 2 * (c->ranks - r - 1) + 1);
    for (int i = 0; i < ahead; i++) add(&m, r, PP_FWD, r, i);
    for (int i = 0; i < c->microbatches; i++) {
      bool both = i + ahead < c->microbatches;
      if (both) add(&m, r, PP_FWD, r, i + ahead);
      if (both) VEC_LAST(&m.list).overlap = n_blocks;
      add(&m, r, halves ? PP_BWD_INPUT : PP_BWD, r, i);
      if (both) VEC_LAST(&m.list).overlap = n_blocks++;
      if (halves) add(&m, r, PP_BWD_WEIGHT, r, i);
    }
  }
  return m.list;
}

/* Any order in which one processor could run everything, dealt out to ranks at random. */
static ScheduledActions random_schedule(Case *c, bool halves) {
  int S = c->stages, M = c->microbatches;
  int *rank_of = arena_alloc_array(c->arena, (size_t)S, sizeof *rank_of);
  for (int s = 0; s < S; s++) rank_of[s] = s < c->ranks ? s : random_below(c->ranks);
  for (int s = S - 1; s > 0; s--) {
    int k = random_below(s + 1), swap = rank_of[s];
    rank_of[s] = rank_of[k], rank_of[k] = swap;
  }
  int *n_forward = arena_alloc_array(c->arena, (size_t)M, sizeof *n_forward);
  int *n_backward = arena_alloc_array(c->arena, (size_t)M, sizeof *n_backward);
  bool *owes = arena_alloc_array(c->arena, (size_t)(S * M), sizeof *owes);
  Maker all = {c, {0}}, sorted = {c, {0}};
  for (int left = 2 * S * M, debts = 0; left + debts > 0;) {
    int i = random_below(M), s;
    if (debts && random_below(4) == 0) {
      int k = random_below(S * M);
      while (!owes[k]) k = (k + 1) % (S * M);
      owes[k] = false, debts--;
      add(&all, rank_of[k / M], PP_BWD_WEIGHT, k / M, k % M);
    } else if (n_forward[i] < S) {
      s = n_forward[i]++, left--;
      add(&all, rank_of[s], PP_FWD, s, i);
    } else if (n_backward[i] < S) {
      s = S - 1 - n_backward[i]++, left--;
      bool split = halves && random_below(2);
      add(&all, rank_of[s], split ? PP_BWD_INPUT : PP_BWD, s, i);
      if (split) owes[s * M + i] = true, debts++;
    }
  }
  for (int r = 0; r < c->ranks; r++)
    for (int k = 0; k < all.list.n; k++)
      if (all.list.at[k].rank == r) add(&sorted, r, all.list.at[k].kind, all.list.at[k].stage, all.list.at[k].microbatch);
  return sorted.list;
}

/* --- what is right ------------------------------------------------------------------------------------------ */

static bool bytes_add_up(const Plan *plan) {
  for (int r = 0; r < plan->n_ranks; r++) {
    int64_t sum = 0;
    for (int k = 0; k < PP_CLASS_COUNT; k++) {
      sum += plan->ranks[r].class_bytes[k];
      if (plan->ranks[r].class_bytes[k] < 0) return false;
    }
    if (sum != (int64_t)(plan->ranks[r].arena_bytes + plan->ranks[r].window_bytes)) return false;
  }
  return true;
}

static void accept(Case *c, ScheduledActions list) {
  const Plan *plan = plan_for(c, &list);
  CHECK(plan != NULL);
  if (plan) {
    CHECK(bytes_add_up(plan));
    CHECK(run_plan(c, plan));
  }
  close_case(c);
}

static const char skip[] = "testdata/models/skip.pp", mlp[] = "testdata/models/mlp.pp";
static const char encdec[] = "testdata/models/encdec.pp", gpt2[] = "testdata/models/gpt2.pp";

static void library_schedules_are_proved(void) {
  const char *const models[] = {mlp, skip};
  for (int k = 0; k < 2; k++) {
    for (int p = 1; p <= 5; p++)
      for (int m = 1; m <= 2 * p + 1; m += p > 2 ? 2 : 1) {
        Case c = open_case(models[k], p, p, m);
        accept(&c, one_f_one_b(&c));
      }
    for (int m = 1; m <= 6; m++) {
      Case c = open_case(models[k], 4, 2, m);
      accept(&c, gpipe(&c, false));
      c = open_case(models[k], 4, 4, m);
      accept(&c, zb_h1(&c));
    }
    for (int m = 2; m <= 6; m += 2) {
      Case c = open_case(models[k], 4, 2, m);
      accept(&c, interleaved(&c));
    }
    Case c = open_case(models[k], 8, 4, 4);
    accept(&c, interleaved(&c));
    c = open_case(models[k], 8, 4, 10);
    accept(&c, interleaved(&c));
    c = open_case(models[k], 8, 4, 3);
    accept(&c, interleaved(&c));
  }
}

static void tied_parameters_are_refreshed(void) {
  for (int m = 1; m <= 5; m += 2) {
    Case c = open_case(encdec, 4, 4, m);
    accept(&c, one_f_one_b(&c));
    c = open_case(encdec, 4, 4, m);
    accept(&c, zb_h1(&c));
    c = open_case(gpt2, 3, 3, m);
    accept(&c, one_f_one_b(&c));
    c = open_case(gpt2, 4, 2, m + 1);
    accept(&c, interleaved(&c));
  }
}

static void random_schedules_are_proved(void) {
  for (int k = 0; k < 60; k++) {
    int stages = 1 + random_below(6), ranks = 1 + random_below(stages);
    Case c = open_case(k % 3 ? skip : mlp, stages, ranks, 1 + random_below(6));
    accept(&c, random_schedule(&c, k % 2));
  }
}

/* --- memory ------------------------------------------------------------------------------------------------- */

/* Stages 1 and 2 are alike; with samples enough the stashes fill the memory. */
static void one_f_one_b_holds_p_minus_r_frames(void) {
  Case c = open_case_of(skip, 4, 4, 8, 256);
  ScheduledActions list = one_f_one_b(&c);
  const Plan *plan = plan_for(&c, &list);
  CHECK(plan != NULL);
  if (plan) {
    int64_t one = plan->ranks[1].class_bytes[PP_CLASS_STASHES], two = plan->ranks[2].class_bytes[PP_CLASS_STASHES];
    CHECK(plan->stages[1].frame_bytes == plan->stages[2].frame_bytes);
    CHECK(two >= 2 * plan->stages[2].frame_bytes && two < 3 * plan->stages[2].frame_bytes);
    CHECK(one * 2 == two * 3);
    CHECK(plan->ranks[3].class_bytes[PP_CLASS_STASHES] < 2 * plan->stages[3].frame_bytes);
  }
  close_case(&c);
}

/* --- what is wrong ------------------------------------------------------------------------------------------ */

static void reject(Case *c, ScheduledActions list, const char *wanted) {
  Loc line = {0, 1, 1};
  CHECK(!schedule_build(c->ir, &list, line, line));
  Str text = {0};
  diag_flush_to(c->diag, &text);
  if (!strstr(str_text(&text), wanted)) CHECK_TEXT(str_text(&text), wanted);
  str_free(&text);
  close_case(c);
}

static ScheduledAction *find(ScheduledActions *list, pp_task_kind kind, int stage, int microbatch) {
  for (int i = 0; i < list->n; i++)
    if (list->at[i].kind == kind && list->at[i].stage == stage && list->at[i].microbatch == microbatch)
      return &list->at[i];
  bug("no such action");
}

static void swap(ScheduledAction *x, ScheduledAction *y) {
  ScheduledAction z = *x;
  *x = *y, *y = z;
}

/* --- overlap blocks ----------------------------------------------------------------------------------------- */

/* The action before which a transfer's receive is posted on its rank, or after it: 2a, 2a + 1; -1: never. */
static int posted_at(const PlanRank *rank, int transfer) {
  for (int a = 0; a < rank->n_actions; a++) {
    const PlanAction *x = &rank->actions[a];
    for (int k = 0; k < x->n_before; k++)
      if (x->before[k].op == PP_POST_RECEIVE && x->before[k].transfer == transfer) return 2 * a;
    for (int k = 0; k < x->n_after; k++)
      if (x->after[k].op == PP_POST_RECEIVE && x->after[k].transfer == transfer) return 2 * a + 1;
  }
  return -1;
}

/* All that a member of a block receives is posted before the first member runs. */
static bool posts_stand_before(const PlanRank *rank, int first, int last) {
  bool ok = true;
  for (int a = first; a <= last; a++)
    for (int k = 0; k < rank->actions[a].n_before; k++) {
      const PlanTransferOp *op = &rank->actions[a].before[k];
      int at = op->op == PP_AWAIT_RECEIVE ? posted_at(rank, op->transfer) : 0;
      ok = ok && at >= 0 && at <= 2 * first;
    }
  return ok;
}

static bool is_written(const PlanArgument *a) {
  return a->kind == PLAN_ARG_WORKSPACE || (a->kind == PLAN_ARG_VALUE && a->is_result);
}

static int64_t argument_bytes(const Plan *plan, const PlanTask *task, const PlanArgument *a) {
  static const int64_t sizes[PP_DTYPE_COUNT] = {[PP_F32] = 4, [PP_F64] = 8, [PP_I32] = 4, [PP_BOOL] = 1};
  int64_t n = sizes[a->type.dtype];
  for (int k = 0; k < a->type.rank; k++) n *= a->type.dims[k];
  if (a->kind == PLAN_ARG_WORKSPACE) return task->workspace_bytes;
  if (a->kind == PLAN_ARG_FRAME) return plan->stages[task->stage].frame_bytes;
  return a->kind == PLAN_ARG_WEIGHT_FRAME ? plan->stages[task->stage].weight_frame_bytes : n;
}

/* What one member writes, results and workspace, lies apart from all that the other has. */
static bool members_are_apart(const Plan *plan, const PlanAction *x, const PlanAction *y) {
  const PlanTask *tx = &plan->tasks[x->task], *ty = &plan->tasks[y->task];
  for (int i = 0; i < tx->n_arguments; i++)
    for (int k = 0; k < ty->n_arguments && is_written(&tx->arguments[i]); k++) {
      uint64_t a = x->offsets[i], b = y->offsets[k];
      if (ty->arguments[k].kind == PLAN_ARG_RUNTIME) continue;
      if (a < b + (uint64_t)argument_bytes(plan, ty, &ty->arguments[k]) && b < a + (uint64_t)argument_bytes(plan, tx, &tx->arguments[i]))
        return false;
    }
  return true;
}

static void members_of_a_block_run_as_one(void) {
  int n_blocks = 0;
  for (int p = 2; p <= 4; p++)
    for (int halves = 0; halves < 2; halves++) {
      Case c = open_case(skip, p, p, 2 * p + 1);
      ScheduledActions list = pairs(&c, halves);
      const Plan *plan = plan_for(&c, &list);
      CHECK(plan != NULL && run_plan(&c, plan));
      for (int i = 0; i + 1 < list.n && plan; i++) {
        if (list.at[i].overlap < 0 || list.at[i].overlap != list.at[i + 1].overlap) continue;
        const PlanRank *rank = &plan->ranks[list.at[i].rank];
        int first = i;
        while (first > 0 && list.at[first - 1].rank == list.at[i].rank) first--;
        int a = i - first; /* no action is left out in this model */
        CHECK(rank->actions[a].microbatch == list.at[i].microbatch);
        CHECK(posts_stand_before(rank, a, a + 1));
        CHECK(members_are_apart(plan, &rank->actions[a], &rank->actions[a + 1]));
        CHECK(members_are_apart(plan, &rank->actions[a + 1], &rank->actions[a]));
        n_blocks++;
      }
      close_case(&c);
    }
  CHECK(n_blocks > 20);
}

static void broken_schedules_are_rejected(void) {
  Case c = open_case(skip, 2, 2, 4);
  ScheduledActions list = one_f_one_b(&c);
  find(&list, PP_FWD, 1, 2)->stage = 7;
  reject(&c, list, "skip.pp:13:1: error: fwd(7, 2) on rank 1: stages run from 0 to 1");

  c = open_case(skip, 2, 2, 4);
  list = one_f_one_b(&c);
  find(&list, PP_FWD, 1, 2)->microbatch = 4;
  reject(&c, list, "error: fwd(1, 4) on rank 1: microbatches run from 0 to 3");

  c = open_case(skip, 2, 2, 4);
  list = one_f_one_b(&c);
  find(&list, PP_BWD, 0, 3)->stage = 1;
  reject(&c, list, "error: stage 1 runs on rank 1 (microbatch 0) and on rank 0: a stage lives on one rank");

  c = open_case(skip, 2, 2, 4);
  list = one_f_one_b(&c);
  find(&list, PP_FWD, 0, 3)->microbatch = 2;
  reject(&c, list, "error: fwd(0, 2) runs twice on rank 0");

  c = open_case(skip, 2, 2, 4);
  list = one_f_one_b(&c);
  list.n--;
  reject(&c, list, "error: rank 1 never runs bwd(1, 3): microbatch 3 of stage 1 is missing");

  c = open_case(skip, 2, 2, 4);
  list = one_f_one_b(&c);
  swap(find(&list, PP_FWD, 1, 1), find(&list, PP_BWD, 1, 1));
  reject(&c, list, "error: rank 1 runs bwd(1, 1) before fwd(1, 1)");

  c = open_case(skip, 2, 2, 4);
  list = zb_h1(&c);
  swap(find(&list, PP_BWD_INPUT, 1, 3), find(&list, PP_BWD_WEIGHT, 1, 3));
  reject(&c, list, "error: rank 1 runs bwd_weight(1, 3) before bwd_input(1, 3)");

  c = open_case(skip, 2, 2, 4);
  list = one_f_one_b(&c);
  VEC_PUSH(c.arena, &list, (ScheduledAction){1, 1, 0, PP_BWD_WEIGHT, -1, {0, 3, 1}, {0}});
  reject(&c, list, "error: rank 1 runs both bwd(1, 0) and its weight half");

  c = open_case(skip, 4, 2, 2);
  list = (ScheduledActions){0};
  Maker m = {&c, {0}};
  for (int s = 0; s < 2; s++)
    for (int i = 0; i < 2; i++) add(&m, s, PP_FWD, s, i), add(&m, s, PP_BWD, s, i);
  reject(&c, m.list, "error: no rank runs stage 2, nor 1 other stage");

  c = open_case(skip, 2, 3, 2);
  c.ranks = 2;
  reject(&c, one_f_one_b(&c), "error: rank 2 runs nothing under this schedule");
}

static void cycles_are_named(void) {
  Case c = open_case(mlp, 2, 2, 2);
  ScheduledActions list = gpipe(&c, false);
  /* rank 0 wants the gradient of microbatch 0 before it has made the activation of 1; rank 1 wants 1 first */
  Maker m = {&c, {0}};
  add(&m, 0, PP_FWD, 0, 0), add(&m, 0, PP_BWD, 0, 0), add(&m, 0, PP_FWD, 0, 1), add(&m, 0, PP_BWD, 0, 1);
  add(&m, 1, PP_FWD, 1, 1), add(&m, 1, PP_FWD, 1, 0), add(&m, 1, PP_BWD, 1, 0), add(&m, 1, PP_BWD, 1, 1);
  (void)list;
  reject(&c, m.list, "error: this schedule can't finish: rank ");

  c = open_case(mlp, 2, 1, 1);
  Maker one = {&c, {0}};
  add(&one, 0, PP_FWD, 1, 0), add(&one, 0, PP_FWD, 0, 0), add(&one, 0, PP_BWD, 1, 0), add(&one, 0, PP_BWD, 0, 0);
  reject(&c, one.list, "of fwd(0, 0), which stands later on this rank");
}

static void descending_microbatches_are_warned_of(void) {
  Case c = open_case(skip, 2, 2, 3);
  ScheduledActions list = gpipe(&c, true);
  Loc line = {0, 1, 1};
  CHECK(schedule_build(c.ir, &list, line, line));
  Str text = {0};
  diag_flush_to(c.diag, &text);
  CHECK(strstr(str_text(&text), "stage 0 adds the gradient of microbatch 1 after that of 2") != NULL);
  CHECK(diag_warning_count(c.diag) > 0);
  str_free(&text);
  close_case(&c);
}

/* Could a processor per rank run it, sends never blocking? Found by trying, without the compiler. */
static bool can_run(const Case *c, const ScheduledActions *list) {
  int S = c->stages, M = c->microbatches, n = list->n;
  bool *done = arena_alloc_array(c->arena, (size_t)n, sizeof *done);
  bool *fwd = arena_alloc_array(c->arena, (size_t)(S * M), sizeof *fwd), *bwd = arena_alloc_array(c->arena, (size_t)(S * M), sizeof *bwd);
  int left = n;
  for (bool moved = true; moved && left;) {
    moved = false;
    for (int i = 0; i < n; i++) {
      const ScheduledAction *a = &list->at[i];
      bool ready = !done[i];
      for (int k = 0; k < i; k++) ready &= done[k] || list->at[k].rank != a->rank;
      int at = a->stage * M + a->microbatch;
      if (a->kind == PP_FWD) ready &= a->stage == 0 || fwd[at - M];
      else ready &= fwd[at] && (a->stage == S - 1 || bwd[at + M]);
      if (!ready) continue;
      done[i] = moved = true, left--;
      (a->kind == PP_FWD ? fwd : bwd)[at] = true;
    }
  }
  return left == 0;
}

static void shuffled_schedules_are_judged_right(void) {
  int accepted = 0, rejected = 0;
  for (int k = 0; k < 80; k++) {
    int stages = 2 + random_below(3), ranks = 1 + random_below(stages);
    Case c = open_case(mlp, stages, ranks, 1 + random_below(4));
    ScheduledActions list = random_schedule(&c, false);
    for (int swaps = 1 + random_below(3); swaps > 0; swaps--) {
      ScheduledAction *x = &list.at[random_below(list.n)], *y = &list.at[random_below(list.n)];
      if (x->rank == y->rank) swap(x, y);
    }
    bool right = can_run(&c, &list);
    (right ? accepted++ : rejected++);
    if (right) {
      accept(&c, list);
    } else {
      reject(&c, list, "error: ");
    }
  }
  CHECK(accepted > 10 && rejected > 10);
}

/* --- the checker by itself ---------------------------------------------------------------------------------- */

static void change_ops(Case *c, int r, void (*change)(int64_t *ops, int64_t n)) {
  OpVec ranks = ir_ops(c->arena, ir_top(c->ir), OP_RANK);
  int64_t n;
  const int64_t *ops = op_ints(c->arena, ranks.at[r], "ops", &n);
  int64_t *copy = arena_alloc_array(c->arena, (size_t)n, sizeof *copy);
  memcpy(copy, ops, (size_t)n * sizeof *copy);
  change(copy, n / 3);
  op_set_ints(c->ir, ranks.at[r], "ops", n, copy);
}

static void expect_no_proof(Case *c, const char *wanted) {
  CHECK(!progress_run(c->ir));
  Str text = {0};
  diag_flush_to(c->diag, &text);
  if (!strstr(str_text(&text), wanted)) CHECK_TEXT(str_text(&text), wanted);
  str_free(&text);
  close_case(c);
}

static Case laid_out(int stages, int microbatches) {
  Case c = open_case(skip, stages, stages, microbatches);
  ScheduledActions list = one_f_one_b(&c);
  Loc line = {0, 1, 1};
  CHECK(schedule_build(c.ir, &list, line, line) && transfers_run(c.ir) && fuse_run(c.ir, true) && memory_run(c.ir));
  diag_flush(c.diag);
  return c;
}

/* Receives just before their use: a deadlock under rendezvous in the steady state of 1F1B. */
static void post_late(int64_t *ops, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    if (ops[3 * i + 1] != PP_POST_RECEIVE) continue;
    int64_t at = i;
    while (at + 1 < n && !(ops[3 * at + 4] == PP_AWAIT_RECEIVE && ops[3 * at + 5] == ops[3 * at + 2])) {
      int64_t row[3] = {ops[3 * at], ops[3 * at + 1], ops[3 * at + 2]};
      row[0] = ops[3 * at + 3];
      memcpy(&ops[3 * at], &ops[3 * at + 3], 3 * sizeof *ops);
      memcpy(&ops[3 * at + 3], row, 3 * sizeof *ops);
      at++;
    }
    if (at + 1 < n) ops[3 * at] = ops[3 * at + 3];
  }
}

static void late_sends(int64_t *ops, int64_t n) { /* wait for each send at once */
  for (int64_t i = 0; i < n; i++) {
    if (ops[3 * i + 1] != PP_AWAIT_SEND) continue;
    int64_t at = i;
    while (at > 0 && !(ops[3 * at - 2] == PP_POST_SEND && ops[3 * at - 1] == ops[3 * at + 2])) {
      int64_t row[3] = {ops[3 * at - 3], ops[3 * at + 1], ops[3 * at + 2]};
      memcpy(&ops[3 * at], &ops[3 * at - 3], 3 * sizeof *ops);
      memcpy(&ops[3 * at - 3], row, 3 * sizeof *ops);
      at--;
    }
    if (at > 0) ops[3 * at] = ops[3 * at - 3];
  }
}

static void wait_less(int64_t *ops, int64_t n) { /* the first wait for a send goes to the end of the step */
  for (int64_t i = 0; i < n; i++) {
    if (ops[3 * i + 1] != PP_AWAIT_SEND) continue;
    int64_t row[3] = {ops[3 * n - 3], ops[3 * i + 1], ops[3 * i + 2]};
    memmove(&ops[3 * i], &ops[3 * i + 3], 3 * (size_t)(n - 1 - i) * sizeof *ops);
    memcpy(&ops[3 * n - 3], row, sizeof row);
    return;
  }
}

static void lose_one(int64_t *ops, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    if (ops[3 * i + 1] == PP_AWAIT_RECEIVE) {
      ops[3 * i + 1] = PP_AWAIT_SEND;
      return;
    }
}

static void the_checker_finds_cycles(void) {
  Case c = laid_out(2, 4);
  change_ops(&c, 0, post_late);
  change_ops(&c, 1, post_late);
  change_ops(&c, 0, late_sends);
  change_ops(&c, 1, late_sends);
  expect_no_proof(&c, "error: this can't finish: ");
}

static void the_checker_finds_bad_memory(void) {
  Case c = laid_out(2, 6);
  change_ops(&c, 1, wait_less);
  expect_no_proof(&c, "live at the same time in the same bytes");
  c = laid_out(2, 3);
  change_ops(&c, 1, lose_one);
  expect_no_proof(&c, "is not its own, or stands twice");
}

int main(void) {
  TEST(library_schedules_are_proved);
  TEST(tied_parameters_are_refreshed);
  TEST(random_schedules_are_proved);
  TEST(one_f_one_b_holds_p_minus_r_frames);
  TEST(members_of_a_block_run_as_one);
  TEST(broken_schedules_are_rejected);
  TEST(cycles_are_named);
  TEST(descending_microbatches_are_warned_of);
  TEST(shuffled_schedules_are_judged_right);
  TEST(the_checker_finds_cycles);
  TEST(the_checker_finds_bad_memory);
  return test_end();
}
