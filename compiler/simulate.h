/* The simulator: when every action of a step runs, and what a rank then holds. */
#ifndef PPC_SIMULATE_H
#define PPC_SIMULATE_H

#include "compiler/costs.h"
#include "compiler/schedule_check.h"
#include "compiler/timeline.h"

typedef struct {
  int rank, stage, microbatch; /* microbatch -1: after the loop */
  pp_task_kind kind;
  int overlap;                 /* number of its overlap block, -1 */
  double cost;
  Loc line;
} SimulateAction;

/* What an action needs of another: `maker` is the action, `route` says what it is. */
typedef struct {
  int maker, route;
} SimulateNeed;

typedef struct {
  double hop;        /* between two ranks; within a rank it is free */
  int64_t bytes;     /* 0: unknown */
  const char *value; /* for messages: "x (net.pp:5)" */
  bool moves;        /* it is data: between two ranks a transfer */
} SimulateRoute;

typedef struct {
  const char *title;
  int n_ranks, n_stages, n_microbatches;
  int n;
  const SimulateAction *actions; /* by rank, in the order of each */
  const int *first_need;         /* [n + 1] */
  const SimulateNeed *needs;
  const SimulateRoute *routes;
  const StatedCosts *costs;      /* of pairs */
  bool in_seconds;
} SimulateJob;

typedef struct {
  double start, end;             /* of its first and last action */
  double work;                   /* the rest of the step is its bubble */
  int n_actions;
  int peak_live;                 /* forward stashes, each until its input gradient (or whole backward) is done */
  int peak_live_weight_held;     /* the same until its weight gradient is done */
} SimulateRank;

typedef struct {
  Timeline timeline;             /* its tasks are the actions, in the same order */
  const SimulateRank *ranks;
  int n_path;
  const int *path;               /* tasks of the critical path, from the first to the last that ends */
} Simulation;

/* Null after a deadlock, which is reported with its cycle. */
Simulation *simulate_run(Arena *arena, Diag *diag, const SimulateJob *job);

/* The job of a checked schedule whose stages form a chain, with stated costs. */
SimulateJob *simulate_chain(Arena *arena, const ScheduledActions *list, const ScheduleIndex *index,
                            const ScheduleJob *schedule, const StatedCosts *costs, const char *title);

/* Numbers for programs, the same for people. `schedule` is the text of --schedule. */
void simulate_report_json(const Simulation *s, const StatedCosts *costs, const char *schedule, Str *out);
void simulate_report_text(const Simulation *s, const StatedCosts *costs, Str *out);

#endif
