/* The simulator on jobs made by hand: what arrives when, blocks, what is alive, the critical path, deadlock. */
#include "compiler/simulate.h"

#include <stdio.h>
#include <string.h>

static Arena *arena;
static Diag *diag;
static int failures;

static void result(bool fine, const char *name) {
  printf("%s %s\n", fine ? "ok" : "FAIL", name);
  failures += !fine;
}

#define COUNT(x) ((int)(sizeof(x) / sizeof *(x)))

/* actions[i] has the needs from first_need[i] on. */
static Simulation *run(int n_ranks, int n, const SimulateAction *actions, const int *first_need, const SimulateNeed *needs,
                       const SimulateRoute *routes, const StatedCosts *costs) {
  SimulateJob job = {.title = "by hand", .n_ranks = n_ranks, .n_stages = 4, .n_microbatches = 2, .n = n, .actions = actions,
                     .first_need = first_need, .needs = needs, .routes = routes, .costs = costs};
  return simulate_run(arena, diag, &job);
}

static const SimulateRoute routes[] = {
    {.hop = 0, .value = "x", .moves = true}, {.hop = 2, .value = "y", .moves = true}, {.hop = 10, .value = "skip", .moves = true}, {.value = "room"}};

static bool spans(const Simulation *s, int task, double start, double end) {
  const TimelineTask *t = &s->timeline.tasks[task];
  if (t->start == start && t->end == end) return true;
  printf("task %d: %g … %g, not %g … %g\n", task, t->start, t->end, start, end);
  return false;
}

/* Stage 2 waits longer for the skip from stage 0 than for stage 1. */
static void try_skip(void) {
  const SimulateAction actions[] = {{.rank = 0, .stage = 0, .overlap = -1, .cost = 1},
                                    {.rank = 0, .stage = 0, .microbatch = 1, .overlap = -1, .cost = 1},
                                    {.rank = 1, .stage = 1, .overlap = -1, .cost = 3},
                                    {.rank = 2, .stage = 2, .overlap = -1, .cost = 1}};
  const int first_need[] = {0, 0, 0, 1, 3};
  const SimulateNeed needs[] = {{0, 1}, {2, 1}, {0, 2}};
  Simulation *s = run(3, COUNT(actions), actions, first_need, needs, routes, NULL);
  result(spans(s, 1, 1, 2) && spans(s, 2, 3, 6) && spans(s, 3, 11, 12), "a skip arrives after its own hop");
  result(s->n_path == 2 && s->path[0] == 0 && s->path[1] == 3 && s->timeline.tasks[0].critical && !s->timeline.tasks[2].critical,
         "the critical path follows the skip");
  const TimelineTransfer *t = s->timeline.transfers;
  result(s->timeline.n_transfers == 3 && t[2].from == 0 && t[2].to == 2 && t[2].start == 1 && t[2].end == 11 && t[2].made == 0 &&
             t[2].used == 3 && strcmp(t[2].value, "skip") == 0,
         "transfers are listed with their times");
  result(s->timeline.step_time == 3 && s->ranks[2].start == 11, "a step is as long as the longest span of a rank");
}

/* On one rank a need is free; what moves no data is no transfer. */
static void try_room(void) {
  const SimulateAction actions[] = {{.rank = 0, .stage = 0, .overlap = -1, .cost = 1},
                                    {.rank = 0, .stage = 1, .overlap = -1, .cost = 1},
                                    {.rank = 1, .stage = 2, .overlap = -1, .cost = 5}};
  const int first_need[] = {0, 1, 2, 2};
  const SimulateNeed needs[] = {{2, 3}, {0, 2}};
  Simulation *s = run(2, COUNT(actions), actions, first_need, needs, routes, NULL);
  result(spans(s, 0, 5, 6) && spans(s, 1, 6, 7) && s->timeline.n_transfers == 0, "waits for room, and needs within a rank");
}

static const SimulateAction block[] = {{.rank = 0, .stage = 0, .overlap = -1, .cost = 1},
                                       {.rank = 0, .stage = 0, .microbatch = 1, .overlap = 0, .cost = 1},
                                       {.rank = 0, .stage = 0, .kind = PP_BWD, .overlap = 0, .cost = 2},
                                       {.rank = 0, .stage = 0, .microbatch = 1, .kind = PP_BWD_INPUT, .overlap = -1, .cost = 1},
                                       {.rank = 0, .stage = 0, .microbatch = 1, .kind = PP_BWD_WEIGHT, .overlap = -1, .cost = 1},
                                       {.rank = 1, .stage = 1, .overlap = -1, .cost = 4}};

/* The forward of the block could start at 1, its backward needs rank 1. */
static void try_block(void) {
  const int first_need[] = {0, 0, 0, 1, 1, 1, 1};
  const SimulateNeed needs[] = {{5, 1}};
  StatedCosts costs = {0};
  Simulation *s = run(2, COUNT(block), block, first_need, needs, routes, &costs);
  result(spans(s, 1, 6, 7) && spans(s, 2, 7, 9), "a block starts when all it needs is there, and costs the sum");
  result(s->ranks[0].work == 6 && s->ranks[0].peak_live == 2 && s->ranks[0].peak_live_weight_held == 2, "its forwards live through it");
  const TimelineMemory *m = &s->timeline.memory[0];
  result(m->n_levels == 4 && m->levels[1].time == 6 && m->levels[1].value == 2 && m->levels[2].time == 9 && m->levels[2].value == 1 &&
             m->levels[3].time == 11 && m->levels[3].value == 0 && m->peak == 2,
         "stashes over time");
  costs_parse(arena, "pair=2.5", &costs);
  s = run(2, COUNT(block), block, first_need, needs, routes, &costs);
  result(spans(s, 1, 6, 8.5) && spans(s, 2, 6, 8.5) && spans(s, 3, 8.5, 9.5) && s->ranks[0].work == 5.5, "a pair of stated cost runs together");
  result(s->n_path == 4 && s->path[0] == 5 && s->path[1] == 2 && s->path[3] == 4, "the path goes through its last member");
}

/* Stage 0 sends no gradient on, stage 1 has no parameters, stage 2 has no backward. */
static void try_halves(void) {
  const SimulateAction actions[] = {{.stage = 0, .overlap = -1, .cost = 1},
                                    {.stage = 1, .overlap = -1, .cost = 1},
                                    {.stage = 2, .overlap = -1, .cost = 1},
                                    {.stage = 1, .kind = PP_BWD_INPUT, .overlap = -1, .cost = 1},
                                    {.stage = 0, .kind = PP_BWD_WEIGHT, .overlap = -1, .cost = 1},
                                    {.stage = 0, .microbatch = 1, .overlap = -1, .cost = 1},
                                    {.stage = 1, .microbatch = 1, .overlap = -1, .cost = 1}};
  const int first_need[COUNT(actions) + 1] = {0};
  Simulation *s = run(1, COUNT(actions), actions, first_need, NULL, routes, NULL);
  result(s->ranks[0].peak_live == 2 && s->ranks[0].peak_live_weight_held == 2, "halves that a model lacks");
}

/* Ranks 1 and 2 wait for each other, rank 0 for rank 1: it is no part of the cycle. */
static void try_deadlock(void) {
  const SimulateAction actions[] = {{.rank = 0, .stage = 0, .overlap = -1, .cost = 1},
                                    {.rank = 1, .stage = 1, .overlap = -1, .cost = 1},
                                    {.rank = 1, .stage = 1, .microbatch = 1, .overlap = -1, .cost = 1},
                                    {.rank = 2, .stage = 2, .overlap = -1, .cost = 1}};
  const int first_need[] = {0, 1, 2, 2, 3};
  const SimulateNeed needs[] = {{2, 0}, {3, 1}, {2, 0}};
  Str text = {0};
  result(!run(3, COUNT(actions), actions, first_need, needs, routes, NULL), "a deadlock gives no times");
  diag_flush_to(diag, &text);
  result(strstr(str_text(&text), "rank 1 waits in fwd(1, 0) for y of fwd(2, 0), which waits in turn") &&
             strstr(str_text(&text), "rank 2 waits in fwd(2, 0) for x of fwd(1, 1), which stands behind an action that waits") &&
             !strstr(str_text(&text), "rank 0"),
         "its cycle is named, and only that");
  str_free(&text);
}

/* What the proof takes, and that it sees an order that is none. */
static void try_proof(void) {
  const int first_need[] = {0, 0, 0, 1, 1, 1, 1};
  const SimulateNeed needs[] = {{5, 1}};
  SimulateJob job = {.n_ranks = 2, .n = COUNT(block), .actions = block, .first_need = first_need, .needs = needs, .routes = routes};
  Simulation *s = simulate_run(arena, diag, &job);
  result(simulate_prove(arena, &job, s) == 1, "the order of a simulation is a proof");
  int order[COUNT(block)];
  const int wrong[][COUNT(block)] = {
      {1, 0, 2, 3, 4, 5},   /* rank 0 turns two round */
      {0, 1, 2, 3, 4, 4},   /* two in one place */
      {0, 1, 3, 4, 5, 2},   /* the block has begun when what it needs is made */
      {0, 1, 2, 3, 4, 6},
  };
  for (int i = 0; i < COUNT(wrong); i++) {
    memcpy(order, wrong[i], sizeof order);
    s->order = order;
    result(simulate_prove(arena, &job, s) < 0, "another order is none");
  }
  const int right[COUNT(block)] = {0, 2, 3, 4, 5, 1};
  s->order = right;
  result(simulate_prove(arena, &job, s) == 1, "but for one that could be");
}

static void try_nothing(void) {
  const int first_need[] = {0};
  Simulation *s = run(2, 0, NULL, first_need, NULL, routes, NULL);
  result(s && s->timeline.step_time == 0 && s->timeline.bubble_rate == 0 && s->n_path == 0, "ranks that do nothing");
}

/* --- estimates of GPUs ------------------------------------------------------------------------------------ */

static bool near(double x, double expected) {
  if (x > 0.999 * expected && x < 1.001 * expected) return true;
  printf("%g, not %g\n", x, expected);
  return false;
}

/* The seconds of a task of n statements, each of which makes a dim × dim matrix of two with `flops`. */
static double of_task(pp_task_kind kind, pp_dtype dtype, int64_t dim, int n, int64_t flops, bool tf32) {
  const int in[] = {0, 1}, out[] = {2};
  PlanBuffer buffers[3];
  PlanStatement statements[3];
  for (int i = 0; i < 3; i++) {
    buffers[i] = (PlanBuffer){.type = {.dtype = dtype, .rank = 2, .dims = {dim, dim}}};
    statements[i] = (PlanStatement){.op = PLAN_OP_KERNEL, .n_in = 2, .in = in, .n_out = 1, .out = out, .flops = flops};
  }
  const PlanTask task = {.kind = kind, .n_buffers = 3, .buffers = buffers, .n_statements = n, .statements = statements};
  const PlanTransfer transfer = {.size_bytes = 64 << 20};
  const Plan plan = {.n_tasks = 1, .tasks = &task, .n_transfers = 1, .transfers = &transfer, .tf32 = tf32};
  Machine h100;
  if (!machine_find_gpu("h100", &h100)) return 0;
  const PlanCosts *costs = plan_costs_estimated(arena, &plan, h100);
  result(near(costs->transfers[0], 10e-6 + 67108864 / (0.8 * 450e9)), "a transfer of 64 MiB over NVLink");
  return costs->tasks[0];
}

/* 0.6 of an H100's products, 0.8 of its 3.35 TB/s, 4 µs for a launch. */
static void try_gpu(void) {
  const int64_t dim = 4096, flops = 2 * dim * dim * dim;
  result(near(of_task(PP_FWD, PP_BF16, dim, 1, flops, false), 137438953472.0 / (0.6 * 989e12)), "a product of bf16");
  result(near(of_task(PP_FWD, PP_F32, dim, 1, flops, true), 137438953472.0 / (0.6 * 495e12)), "of TF32");
  result(near(of_task(PP_FWD, PP_F32, dim, 1, flops, false), 137438953472.0 / (0.6 * 67e12)), "of f32");
  result(near(of_task(PP_FWD, PP_F32, dim, 2, 0, false), 2 * 3 * 67108864 / (0.8 * 3.35e12)), "sums are as fast as memory");
  result(near(of_task(PP_FWD, PP_F32, 8, 3, 0, false), 12e-6), "small kernels take as long as their launches");
  result(near(of_task(PP_UPDATE, PP_F32, 8, 3, 0, false), 4e-6), "those of an update are launched together");
  Machine none;
  result(!machine_find_gpu("v100", &none), "a GPU without figures");
}

int main(void) {
  arena = arena_create();
  diag = diag_create();
  try_skip();
  try_room();
  try_block();
  try_halves();
  try_deadlock();
  try_proof();
  try_nothing();
  try_gpu();
  diag_destroy(diag);
  arena_destroy(arena);
  return failures > 0;
}
