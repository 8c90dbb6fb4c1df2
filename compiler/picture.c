/* What the two forms of a picture share. In: timelines. Out: where their tasks lie, colours, numbers as people
 * read them. The colours are those of Okabe and Ito, which people with any common colour blindness can tell apart;
 * letters say the same. Stages of one rank differ in lightness. */
#include "compiler/picture.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- colours ------------------------------------------------------------------------------------------ */

static const struct {
  const char *letter, *meaning;
  unsigned fill;
} classes[PICTURE_CLASS_COUNT] = {
    [PICTURE_F] = {"F", "forward", 0x56b4e9},
    [PICTURE_B] = {"B", "backward", 0xe69f00},
    [PICTURE_I] = {"I", "backward, input half", 0xd55e00},
    [PICTURE_W] = {"W", "backward, weight half", 0x009e73},
    [PICTURE_AFTER] = {"U", "update and the rest outside the loop", 0xcc79a7},
};

PictureClass picture_class(pp_task_kind kind) {
  switch (kind) {
  case PP_FWD: return PICTURE_F;
  case PP_BWD: return PICTURE_B;
  case PP_BWD_INPUT: return PICTURE_I;
  case PP_BWD_WEIGHT: return PICTURE_W;
  default: return PICTURE_AFTER;
  }
}

const char *picture_letter(PictureClass class) { return classes[class].letter; }
const char *picture_meaning(PictureClass class) { return classes[class].meaning; }

static unsigned mix(unsigned color, double white, int shift) {
  double part = color >> shift & 0xff;
  return (unsigned)lround(part + (255 - part) * white) << shift;
}

/* The first chunk has the full colour, the last is the palest. */
unsigned picture_fill(PictureClass class, int chunk, int n_chunks) {
  double white = n_chunks > 1 ? 0.6 * chunk / (n_chunks - 1) : 0;
  unsigned color = classes[class].fill;
  return mix(color, white, 16) | mix(color, white, 8) | mix(color, white, 0);
}

/* Relative luminance as WCAG defines it. */
static double luminance(unsigned color) {
  double sum = 0;
  static const double weights[] = {0.0722, 0.7152, 0.2126};
  for (int i = 0; i < 3; i++) {
    double part = (color >> 8 * i & 0xff) / 255.0;
    sum += weights[i] * (part <= 0.04045 ? part / 12.92 : pow((part + 0.055) / 1.055, 2.4));
  }
  return sum;
}

unsigned picture_ink(unsigned fill) {
  double light = luminance(fill);
  return (light + 0.05) / 0.05 >= 1.05 / (light + 0.05) ? 0x000000 : 0xffffff;
}

/* --- where things lie ------------------------------------------------------------------------------------ */

static void index_tasks(Arena *arena, PicturePanel *p) {
  const Timeline *t = p->timeline;
  p->first_task = arena_alloc_array(arena, (size_t)t->n_ranks + 1, sizeof *p->first_task);
  for (int i = 0; i < t->n_tasks; i++) p->first_task[t->tasks[i].rank + 1]++;
  for (int r = 0; r < t->n_ranks; r++) p->first_task[r + 1] += p->first_task[r];
}

/* Neighbours that run at the same time share the row. */
static void choose_lanes(Arena *arena, PicturePanel *p) {
  const Timeline *t = p->timeline;
  p->lane = arena_alloc_array(arena, (size_t)t->n_tasks + 1, sizeof *p->lane);
  for (int i = 1; i < t->n_tasks; i++) {
    const TimelineTask *a = &t->tasks[i - 1], *b = &t->tasks[i];
    if (a->rank != b->rank || b->start >= a->end - 1e-9 * t->step_time) continue;
    if (p->lane[i - 1] == PICTURE_WHOLE) p->lane[i - 1] = PICTURE_UPPER;
    p->lane[i] = p->lane[i - 1] == PICTURE_UPPER ? PICTURE_LOWER : PICTURE_UPPER;
  }
}

static int int_order(const void *x, const void *y) { return *(const int *)x - *(const int *)y; }

/* A stage's number among the stages of its rank, in the order of their numbers. */
static void number_chunks(Arena *arena, PicturePanel *p) {
  const Timeline *t = p->timeline;
  p->chunk = arena_alloc_array(arena, (size_t)t->n_stages + 1, sizeof *p->chunk);
  int *seen = arena_alloc_array(arena, (size_t)t->n_stages + 1, sizeof *seen); /* rank + 1 that saw it last */
  int *own = arena_alloc_array(arena, (size_t)t->n_stages + 1, sizeof *own);
  p->n_chunks = 1;
  for (int r = 0; r < t->n_ranks; r++) {
    int n = 0;
    for (int i = p->first_task[r]; i < p->first_task[r + 1]; i++) {
      int stage = t->tasks[i].stage;
      if (stage < 0 || stage >= t->n_stages || seen[stage] == r + 1) continue;
      seen[stage] = r + 1;
      own[n++] = stage;
    }
    qsort(own, (size_t)n, sizeof *own, int_order);
    for (int k = 0; k < n; k++) p->chunk[own[k]] = k;
    if (n > p->n_chunks) p->n_chunks = n;
  }
}

static void find_extents(PicturePanel *p) {
  const Timeline *t = p->timeline;
  for (int i = 0; i < t->n_tasks; i++) p->end = fmax(p->end, t->tasks[i].end);
  p->span = fmax(t->step_time, p->end);
  if (!(p->span > 0)) p->span = 1;
  for (int r = 0; t->memory && r < t->n_ranks; r++) p->peak = fmax(p->peak, t->memory[r].peak);
}

static void choose_unit(PicturePanel *p, double span) {
  static const struct { double seconds; const char *name; } units[] = {{1, " s"}, {1e-3, " ms"}, {1e-6, " µs"}, {1e-9, " ns"}};
  int k = 0;
  p->unit = 1;
  p->unit_name = "";
  if (!p->timeline->in_seconds) return;
  while (k < 3 && span < units[k].seconds) k++;
  p->unit = units[k].seconds;
  p->unit_name = units[k].name;
}

Picture picture_plan(Arena *arena, const Timeline *const *timelines, int n) {
  Picture picture = {.n = n, .panels = arena_alloc_array(arena, (size_t)n, sizeof *picture.panels)};
  double longest = 0;
  bool alike = true;
  for (int i = 0; i < n; i++) {
    PicturePanel *p = &picture.panels[i];
    p->timeline = timelines[i];
    index_tasks(arena, p);
    choose_lanes(arena, p);
    number_chunks(arena, p);
    find_extents(p);
    longest = fmax(longest, p->span);
    alike &= timelines[i]->in_seconds == timelines[0]->in_seconds;
  }
  for (int i = 0; i < n; i++) {
    if (alike) picture.panels[i].span = longest;
    choose_unit(&picture.panels[i], picture.panels[i].span);
  }
  return picture;
}

const char *picture_memory_meaning(const Picture *picture) {
  for (int i = 0; i < picture->n; i++)
    if (picture->panels[i].peak > 0) return picture->panels[i].timeline->memory_in_bytes ? "memory in use" : "live stashes";
  return NULL;
}

double picture_work(const PicturePanel *p, int rank) {
  const Timeline *t = p->timeline;
  double work = 0, until = -INFINITY;
  for (int i = p->first_task[rank]; i < p->first_task[rank + 1]; i++) {
    work += fmax(0, t->tasks[i].end - fmax(until, t->tasks[i].start));
    until = fmax(until, t->tasks[i].end);
  }
  return work;
}

/* --- text ----------------------------------------------------------------------------------------------- */

const char *picture_time(Arena *arena, const PicturePanel *p, double time) {
  double value = time / p->unit, size = p->span / p->unit;
  int digits = size >= 1000 ? 1 : size >= 100 ? 2 : size >= 10 ? 3 : 4;
  char *text = arena_printf(arena, "%.*f", digits, value == 0 ? 0 : value);
  size_t n = strlen(text);
  while (n > 1 && text[n - 1] == '0') n--;
  if (text[n - 1] == '.') n--;
  return arena_printf(arena, "%.*s%s", (int)n, text, p->unit_name);
}

const char *picture_bytes(Arena *arena, double bytes) {
  static const char *const names[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  int k = 0;
  for (; bytes >= 1024 && k < 4; k++) bytes /= 1024;
  return arena_printf(arena, bytes < 10 && k > 0 ? "%.1f %s" : "%.0f %s", bytes, names[k]);
}

const char *picture_level(Arena *arena, const PicturePanel *p, double value) {
  return p->timeline->memory_in_bytes ? picture_bytes(arena, value) : arena_printf(arena, "%g", value);
}

const char *picture_caption(Arena *arena, const PicturePanel *p) {
  const Timeline *t = p->timeline;
  return arena_printf(arena, "%s: step %s, bubble %s (%.1f %% of the step)", t->measured ? "measured" : "predicted",
                      picture_time(arena, p, t->step_time), picture_time(arena, p, t->bubble), 100 * t->bubble_rate);
}

double picture_tick(double span, int n) {
  double raw = span / (n > 0 ? n : 1), power = pow(10, floor(log10(raw)));
  double rest = raw / power;
  return power * (rest <= 1 ? 1 : rest <= 2 ? 2 : rest <= 5 ? 5 : 10);
}

/* Bytes of the well-formed character at `text`, 0: it is none, or none that XML takes. */
static int utf8_length(const unsigned char *text) {
  int n = text[0] < 0x80 ? 1 : text[0] >= 0xc2 && text[0] < 0xe0 ? 2 : text[0] >= 0xe0 && text[0] < 0xf0 ? 3 : text[0] >= 0xf0 && text[0] < 0xf5 ? 4 : 0;
  for (int i = 1; i < n; i++)
    if ((text[i] & 0xc0) != 0x80) return 0;
  if (n == 3 && ((text[0] == 0xe0 && text[1] < 0xa0) || (text[0] == 0xed && text[1] >= 0xa0))) return 0;
  if (n == 3 && text[0] == 0xef && text[1] == 0xbf && text[2] >= 0xbe) return 0;
  if (n == 4 && ((text[0] == 0xf0 && text[1] < 0x90) || (text[0] == 0xf4 && text[1] >= 0x90))) return 0;
  return n == 1 && (text[0] < 0x20 || text[0] == 0x7f) ? 0 : n;
}

const char *picture_utf8(Arena *arena, const char *text) {
  char *copy = arena_strdup(arena, text);
  for (char *at = copy; *at;) {
    int n = utf8_length((const unsigned char *)at);
    if (n == 0) *at = '?';
    at += n ? n : 1;
  }
  return copy;
}

const char *picture_escape(Arena *arena, const char *text) {
  Str out = {0};
  for (text = picture_utf8(arena, text); *text; text++) {
    switch (*text) {
    case '<': str_puts(&out, "&lt;"); break;
    case '>': str_puts(&out, "&gt;"); break;
    case '&': str_puts(&out, "&amp;"); break;
    case '"': str_puts(&out, "&quot;"); break;
    default: str_putc(&out, *text);
    }
  }
  const char *copy = arena_strdup(arena, str_text(&out));
  str_free(&out);
  return copy;
}
