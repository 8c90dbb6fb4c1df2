/* `ppc simulate`, and `ppc check` of a schedule alone. */
#ifndef PPC_DRIVER_SIMULATE_H
#define PPC_DRIVER_SIMULATE_H

#include "compiler/driver/options.h"

/* Prints the result on stdout and errors on stderr; returns a status. */
int simulate_command(Arena *arena, Diag *diag, const Options *options);
int simulate_check_schedule(Arena *arena, Diag *diag, const Options *options);

#endif
