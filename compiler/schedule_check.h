/* The checks of a list of actions that need no model. */
#ifndef PPC_SCHEDULE_CHECK_H
#define PPC_SCHEDULE_CHECK_H

#include "compiler/compiler.h"

typedef struct {
  int n_ranks, n_stages, n_microbatches;
  Loc schedule, ranks;   /* lines of train, for what has no line of its own */
  bool forward_only;     /* generation: no backward pass is asked for */
  bool bare;             /* there is no model: the numbers are the command line's */
} ScheduleJob;

typedef struct {
  const int *at;          /* [schedule_slot] index in the list + 1; 0: no such action */
  const int *stage_first; /* [n_stages] index in the list + 1 of its first action */
} ScheduleIndex;

/* A slot for each action of the loop: [stage][kind][microbatch]. */
static inline int64_t schedule_slot(const ScheduleJob *job, int stage, pp_task_kind kind, int microbatch) {
  return ((int64_t)stage * (PP_BWD_WEIGHT + 1) + (int)kind) * job->n_microbatches + microbatch;
}

/* Reports to `diag`. The index lies in `arena`; it is whole only when the result is true. */
bool schedule_check(Diag *diag, Arena *arena, const ScheduledActions *list, const ScheduleJob *job,
                    ScheduleIndex *out_index);

/* The line of the schedule that a reader follows: inside `rank { }`. */
Loc schedule_line_of(const ScheduledAction *action);

/* What a rank waits for when nothing moves any more. */
typedef struct {
  int other;               /* rank that is to make it, -1: this rank has finished */
  bool in_block;           /* it stands in the same overlap block */
  bool other_waits;        /* it is the very action in which the other waits */
  Loc line;
  const char *action, *value, *wanted; /* "fwd(1, 2)", "x (net.pp:5)", "fwd(0, 2)" */
} ScheduleWait;

/* Every rank that can't go on waits for one other: following these from any of them ends in a cycle, which
 * is reported, and nothing but it. */
void schedule_report_cycle(Diag *diag, Arena *arena, int n_ranks, const ScheduleWait *waits);

#endif
