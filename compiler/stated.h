/* The transfers that a CSV file states: are they those that the actions imply, and can their order finish? */
#ifndef PPC_STATED_H
#define PPC_STATED_H

#include "compiler/schedule_check.h"
#include "compiler/schedule_csv.h"

typedef struct {
  const ScheduleCsv *csv;    /* its actions have passed schedule_check */
  const ScheduleJob *job;
  const ScheduleIndex *index;
  const bool *forward;       /* [n_stages] fwd of this stage makes what the next one uses; null: all do */
  const bool *backward;      /* [n_stages] its backward makes what the stage before uses; null: all do */
} StatedJob;

/* False after errors, each at its cell. */
bool stated_check(Diag *diag, Arena *arena, const StatedJob *job);

#endif
