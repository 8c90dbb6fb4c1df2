/* The pictures of `ppc simulate`: --svg=FILE, --html=FILE, with --trace=FILE the measured step beside the predicted. */
#ifndef PPC_DRIVER_PICTURES_H
#define PPC_DRIVER_PICTURES_H

#include "compiler/driver/options.h"
#include "compiler/timeline.h"
#include "compiler/trace_read.h"

/* The trace in a file, with a warning when its ranks' clocks differ; null with a text. */
const Trace *pictures_read_trace(Arena *arena, Diag *diag, const char *path, Str *out_error);

/* `of_costs`: what was read for --costs, or null. False after an error, which is printed. Nothing is written
 * unless all inputs are fine. */
bool pictures_write(Arena *arena, Diag *diag, const Options *options, const Timeline *predicted, const Trace *of_costs);

#endif
