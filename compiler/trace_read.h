/* A trace that an emitted program wrote (--trace=FILE), as costs and as a picture's timeline. */
#ifndef PPC_TRACE_READ_H
#define PPC_TRACE_READ_H

#include <stddef.h>

#include "compiler/base/arena.h"
#include "compiler/base/str.h"
#include "compiler/timeline.h"

typedef struct Trace Trace;

/* `name` is the file's, for messages. Null with a text when it is no such trace, or not a whole one. */
const Trace *trace_read(Arena *arena, const char *name, const char *text, size_t size, Str *out_error);

/* Transfers that end before they begin: each rank tells the time by its own device. They count as of no length. */
typedef struct {
  int n;
  double most; /* seconds */
} TraceSkew;

TraceSkew trace_skew(const Trace *trace);

/* One step of it in seconds from its first task: the one whose step time is the median of all. */
const Timeline *trace_timeline(Arena *arena, const Trace *trace);

typedef struct {
  const char *model;               /* "gpt2.pp" */
  int n_ranks, n_stages, n_microbatches;
  int microbatch;                  /* samples in each */
  const double *task;              /* [n_stages][PP_TASK_KIND_COUNT] mean seconds in the middle half of the steps; NAN: no such task ran */
  double latency;                  /* seconds from a post to the end of the wait that it ends, less the copy; 0: nobody waited */
  double seconds_per_byte;         /* of the copies */
  double step_time;                /* the median */
} TraceCosts;

const TraceCosts *trace_costs(Arena *arena, const Trace *trace);

#endif
