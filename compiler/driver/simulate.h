/* `ppc simulate`, and `ppc check` of a schedule alone. */
#ifndef PPC_DRIVER_SIMULATE_H
#define PPC_DRIVER_SIMULATE_H

#include "compiler/driver/options.h"
#include "compiler/plan.h"
#include "compiler/report.h"

/* Prints the result on stdout and errors on stderr; returns a status. */
int simulate_command(Arena *arena, Diag *diag, const Options *options);
int simulate_check_schedule(Arena *arena, Diag *diag, const Options *options);

/* A step of a plan that was proved, and that trains. */
ReportEstimate simulate_estimate(Arena *arena, Diag *diag, const Options *options, const Plan *plan);

#endif
