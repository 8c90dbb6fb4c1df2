/* A step of a pipeline over time: what ran where, from when to when. Made by the simulator (predicted) or
 * read from a trace (measured); the chart, SVG and HTML draw it. Plain data in the arena it was made in. */
#ifndef PPC_TIMELINE_H
#define PPC_TIMELINE_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/abi.h"

typedef struct {
  int rank, stage, microbatch;   /* microbatch -1: outside the loop */
  pp_task_kind kind;
  double start, end;
  int overlap;                   /* number of its overlap block, -1: none */
  bool critical;                 /* on the critical path */
  const char *line;              /* "zb.pp:12" of the schedule; null: unknown */
} TimelineTask;

typedef struct {
  const char *value;             /* name in the source; null: unknown */
  int microbatch, from, to;      /* ranks */
  int made, used;                /* indexes of tasks, -1: unknown */
  double start, end;
  int64_t bytes;                 /* 0: unknown */
} TimelineTransfer;

typedef struct {
  double time;
  double value;                  /* bytes, or live stashes without a model, from this time on */
} TimelineLevel;

typedef struct {
  int n_levels;
  const TimelineLevel *levels;   /* ascending times */
  double peak;
} TimelineMemory;

typedef struct {
  const char *title;             /* "zb_h1, 8 ranks, 24 microbatches" */
  bool measured;
  bool in_seconds;               /* else in the unit of the stated costs */
  bool memory_in_bytes;          /* else in live stashes */
  int n_ranks, n_stages, n_microbatches;
  int n_tasks;
  const TimelineTask *tasks;     /* by rank, then start */
  int n_transfers;
  const TimelineTransfer *transfers;
  const TimelineMemory *memory;  /* [n_ranks], null: unknown */
  double step_time;              /* the largest span of a rank: end of its last task - start of its first */
  double bubble, bubble_rate;    /* step_time - the work of the busiest rank; that / step_time */
} Timeline;

#endif
