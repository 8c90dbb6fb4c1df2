/* Schedules without a model. */
#ifndef PPC_BARE_H
#define PPC_BARE_H

#include "compiler/driver/options.h"
#include "compiler/schedule_check.h"
#include "compiler/schedule_csv.h"

typedef struct {
  ScheduledActions actions;
  ScheduleJob job;
  ScheduleIndex index;
  const ScheduleCsv *csv; /* null: a schedule of the language */
  const char *name;      /* the text of --schedule */
} Bare;

/* True when the command line asks for a schedule alone: --schedule and no file, or one without `train`.
 * Errors of the file are left to those who load it. */
bool bare_is_wanted(const Options *options);

/* With a model: true after an error for an option that is of schedules alone. */
bool bare_refuse_options(Diag *diag, const Options *options);

/* The one place where the actions of --schedule come from. False after errors. */
bool bare_read(Arena *arena, Diag *diag, const Options *options, Bare *out);

/* "zb_h1, 4 ranks, 4 stages, 8 microbatches" */
const char *bare_title(Arena *arena, const char *schedule, const ScheduleJob *job);

#endif
