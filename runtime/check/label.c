/* Labels: what an op is called in a report, and its place in time. An op's id is the index of its label, so ids grow in
 * the order in which ops are made. */
#include <stdio.h>
#include <stdlib.h>

#include "core.h"

enum { LABELS_MORE = 1024 };

typedef struct Label {
  char text[160];
  int lane;
  uint32_t tick; /* of its lane, when the op started */
} Label;

static Label *labels;
static uint32_t n_labels = 1;

uint32_t check_label_create(const char *call, int lane) {
  if (n_labels % LABELS_MORE == 1) labels = realloc(labels, (n_labels + LABELS_MORE) * sizeof *labels);
  if (!labels) check_fatal("internal", "out of memory");
  labels[n_labels] = (Label){.lane = lane};
  snprintf(labels[n_labels].text, sizeof labels->text, "%s", call);
  return n_labels++;
}

uint32_t check_label_next(void) { return n_labels; }
const char *check_label_text(uint32_t id) { return labels[id].text; }
void check_op_tick(const Op *op, uint32_t tick) { labels[op->id].tick = tick; }

bool check_clock_has(const Clock *clock, uint32_t op) {
  return clock->at[check_rank()][labels[op].lane] >= labels[op].tick;
}
