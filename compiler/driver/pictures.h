/* The pictures of `ppc simulate`: --svg=FILE, --html=FILE, with --trace=FILE the measured step beside the predicted. */
#ifndef PPC_DRIVER_PICTURES_H
#define PPC_DRIVER_PICTURES_H

#include "compiler/driver/options.h"
#include "compiler/timeline.h"

/* False after an error, which is printed. Nothing is written unless all inputs are fine. */
bool pictures_write(Arena *arena, const Options *options, const Timeline *predicted);

#endif
