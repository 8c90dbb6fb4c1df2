/* The chart of a timeline for a terminal. */
#ifndef PPC_CHART_H
#define PPC_CHART_H

#include "compiler/base/str.h"
#include "compiler/timeline.h"

/* A row for each rank, at most `columns` wide. Letters say what runs, so that it reads without colours too. */
void chart_print(const Timeline *t, int columns, bool color, Str *out);

#endif
