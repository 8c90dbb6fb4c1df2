/* Labels and objects. A label is what an op is called in a report, and its place in time; an op's id is the index of its
 * label, so ids grow in the order in which ops are made. An object is what a program must give back. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core.h"

enum { LABELS_MORE = 1024, MAX_TURNS = 4 };

typedef struct Label {
  char text[160];
  int lane;
  uint32_t tick; /* of its lane, when the op started */
  uint32_t place;
} Label;

static Label *labels;
static uint32_t n_labels = 1;
static CheckObject *objects;

/* ---- labels ---- */

static Label *label_add(int lane, uint32_t place) {
  if (n_labels % LABELS_MORE == 1) labels = realloc(labels, (n_labels + LABELS_MORE) * sizeof *labels);
  if (!labels) check_fatal("internal", "out of memory");
  labels[n_labels] = (Label){.lane = lane, .place = place};
  return &labels[n_labels++];
}

uint32_t check_label_create(const char *call, int lane) {
  Label *label = label_add(lane, check_place_create());
  snprintf(label->text, sizeof label->text, "%s [stream %s, '%s'", call, check_lane_at(lane)->name, check_action());
  return n_labels - 1;
}

uint32_t check_label_copy(uint32_t id, int lane) {
  Label *label = label_add(lane, labels[id].place);
  memcpy(label->text, labels[id].text, sizeof label->text);
  return n_labels - 1;
}

uint32_t check_label_next(void) { return n_labels; }

const char *check_label_text(uint32_t id) {
  static char text[MAX_TURNS][2 * CHECK_TEXT];
  static int turn;
  char *out = text[turn++ % MAX_TURNS];
  const char *place = check_place_text(labels[id].place);
  snprintf(out, sizeof text[0], "%s%s%s]", labels[id].text, place[0] ? ", " : "", place);
  return out;
}

const char *check_label_brief(uint32_t id) {
  static char text[MAX_TURNS][CHECK_TEXT];
  static int turn;
  char *out = text[turn++ % MAX_TURNS];
  snprintf(out, sizeof text[0], "%s]", labels[id].text);
  return out;
}

void check_op_tick(const Op *op, uint32_t tick) { labels[op->id].tick = tick; }

bool check_clock_has(const Clock *clock, uint32_t op) {
  return clock->at[check_rank()][labels[op].lane] >= labels[op].tick;
}

/* ---- objects ---- */

void check_object_begin(CheckObject *object, const char *kind, const char *format, ...) {
  va_list arguments;
  *object = (CheckObject){.kind = kind, .place = check_place_create(), .live = true, .next = objects};
  va_start(arguments, format);
  vsnprintf(object->name, sizeof object->name, format, arguments);
  va_end(arguments);
  objects = object;
}

bool check_object_is_live(const CheckObject *object, const char *call) {
  if (object && object->live) return true;
  if (object)
    check_report("misuse", "%s in '%s' uses %s %s, which was destroyed", call, check_action(), object->kind, object->name);
  else
    check_report("misuse", "%s in '%s' is given NULL", call, check_action());
  return false;
}

bool check_object_end(CheckObject *object, const char *call) {
  if (!check_object_is_live(object, call)) return false;
  object->live = false;
  for (CheckObject **at = &objects; *at; at = &(*at)->next) {
    if (*at != object) continue;
    *at = object->next;
    break;
  }
  return true;
}

static void tell_leak(const char *kind, const char *name, uint32_t place) {
  const char *where = check_place_text(place);
  check_report("leak", "%s %s%s%s is never given back", kind, name, where[0] ? ", made at " : "", where);
}

void check_late_load(const Op *op) {
  const CheckObject *o = objects;
  while (o && strcmp(o->kind, "communicator") != 0) o = o->next;
  if (o) check_report("late load", "%s: its code is brought to the device only now, which may wait for transfers", check_label_text(op->id));
}

void check_objects_list(const char *only) {
  for (const CheckObject *o = objects; o; o = o->next)
    if (!only || strcmp(o->kind, only) == 0) tell_leak(o->kind, o->name, o->place);
  for (const Span *s = NULL; !only && (s = check_allocation_next_live(s));)
    tell_leak("device memory", check_buffer_at(s->base), s->place);
}
