/* The simulator: when every action of a step runs, and what a rank then holds. */
#ifndef PPC_SIMULATE_H
#define PPC_SIMULATE_H

#include "compiler/costs.h"
#include "compiler/plan.h"
#include "compiler/schedule_check.h"
#include "compiler/timeline.h"
#include "compiler/trace_read.h"

typedef struct {
  int rank, stage, microbatch; /* microbatch -1: outside the loop */
  pp_task_kind kind;
  int overlap;                 /* number of its overlap block, -1 */
  double cost;
  Loc line;                    /* of the schedule program */
  const char *line_name;       /* "zb.pp:12"; null: made from `line` */
} SimulateAction;

/* Do two actions stand in one overlap block? */
static inline bool simulate_share_block(const SimulateAction *a, const SimulateAction *b) {
  return a->overlap >= 0 && a->overlap == b->overlap && a->rank == b->rank;
}

/* What an action needs of another: `maker` is the action, `route` says what it is. */
typedef struct {
  int maker, route;
} SimulateNeed;

typedef struct {
  double hop;        /* between two ranks; within a rank it is free, unless … */
  bool lasts;        /* … it is how long the rank's own buffer is read */
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
  const StatedCosts *costs;      /* of pairs; null: the sum */
  const int64_t *live_bytes;     /* [n] in use during each action; null: live stashes are counted instead */
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
  const int *order;              /* [n_tasks] a place for each in one order in which all could run */
  int n_path;
  const int *path;               /* tasks of the critical path, from the first to the last that ends */
} Simulation;

/* Null after a deadlock, which is reported with its cycle. */
Simulation *simulate_run(Arena *arena, Diag *diag, const SimulateJob *job);

/* Verifies that the simulation's order is a witness of progress in the strictest transport: a rank issues its
 * sends and receives one at a time in one order common to all, each completes only when both its ends are
 * issued, and still nothing waits for ever. Returns the number of transfers, -1 when it is no such witness. */
int simulate_prove(Arena *arena, const SimulateJob *job, const Simulation *s);

/* The job of a checked schedule whose stages form a chain, with stated costs. */
SimulateJob *simulate_chain(Arena *arena, const ScheduledActions *list, const ScheduleIndex *index,
                            const ScheduleJob *schedule, const StatedCosts *costs, const char *title);

/* --- of a model ------------------------------------------------------------------------------------------ */

/* What a machine does, for estimates: each statement of a task takes as long as its products at `flops`, its bytes
 * at `bandwidth` or `launch`, whichever is longest; a transfer `latency` and its bytes at `link`. An update's
 * statements are launched together. */
enum { MACHINE_F32, MACHINE_TF32, MACHINE_BF16, MACHINE_F64, MACHINE_RATES };
typedef struct {
  const char *name;              /* "h100" */
  double flops[MACHINE_RATES];   /* per second, of products of such operands */
  double bandwidth, link;        /* bytes per second */
  double launch, latency;        /* seconds */
} Machine;

/* machines.c */
Machine machine_core(void);
bool machine_find_gpu(const char *name, Machine *out); /* "a100", "h100", "h200", "b200" */
double machine_flops(const Machine *machine, const Plan *plan, pp_dtype operands);

typedef enum { COSTS_STATED, COSTS_ESTIMATED, COSTS_MEASURED } CostsFrom;

typedef struct {
  CostsFrom from;
  const double *tasks;           /* [n_tasks of the plan] */
  const double *transfers;       /* [n_transfers of the plan] */
  const StatedCosts *stated;     /* STATED */
  Machine machine;               /* ESTIMATED */
  const char *trace;             /* MEASURED: the file … */
  double measured_step;          /* … and the median step time in it */
} PlanCosts;

PlanCosts *plan_costs_stated(Arena *arena, const Plan *plan, const StatedCosts *stated);
PlanCosts *plan_costs_estimated(Arena *arena, const Plan *plan, Machine machine);

/* Means of a measured run. A whole backward costs its halves where only they ran; halves share what a whole one
 * cost as their estimates do; what else didn't run behind the loop is estimated. Null with a text when the trace
 * is of another model. */
PlanCosts *plan_costs_measured(Arena *arena, const Plan *plan, const TraceCosts *trace, const char *name, Machine machine,
                               Str *out_error);

/* The actions and transfers of the emitted programs. */
SimulateJob *simulate_plan(Arena *arena, const Plan *plan, const PlanCosts *costs, const char *title);

/* --- reports --------------------------------------------------------------------------------------------- */

typedef struct {
  const char *schedule;          /* the text of --schedule, or the name of the model's */
  const StatedCosts *stated;     /* without a model */
  const Plan *plan;              /* null: no model */
  const PlanCosts *costs;        /* of the plan */
  const char *verdict;           /* "proved", null: it was not asked */
  int n_transfers;               /* then: how many there are */
  int columns;                   /* of the chart */
  bool color;
} SimulateView;

void simulate_report_json(const Simulation *s, const SimulateView *view, Str *out);
void simulate_report_text(const Simulation *s, const SimulateView *view, Str *out);
/* What `ppc check` prints of a schedule without a model. */
void simulate_report_check(const Simulation *s, const SimulateView *view, Str *out);

#endif
