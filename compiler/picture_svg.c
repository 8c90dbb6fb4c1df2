/* Timelines as one SVG. A row per rank: a box per task, with its letter and microbatch where they fit, beneath it
 * what the rank holds in memory. Boxes have titles (a browser shows them), and while the pointer is on one, arrows
 * show its transfers; there is no script. What is narrower than a pixel is merged with its neighbours into a
 * box of the kind that has most of the time; with more than MAX_DETAILS tasks titles and arrows are left out. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "compiler/base/vec.h"
#include "compiler/picture.h"

enum { WIDTH = 1200, LEFT = 58, RIGHT = 74, TOP = 30, PANEL_GAP = 26, MAX_DETAILS = 6000 };
#define LETTER_WIDTH 6.1 /* of the box font */
#define NARROW 1.0       /* pixels */

typedef struct {
  Arena *arena;
  Str *out;
  const PicturePanel *panel;
  int number;              /* of the panel */
  double top;              /* of its first row */
  double bar, memory, gap; /* heights */
  bool details;
  const int *first_in, *in, *first_out, *sent; /* transfers by the task that uses, or makes, them */
} Drawing;

static double x_of(const Drawing *d, double time) { return LEFT + time / d->panel->span * (WIDTH - LEFT - RIGHT); }
static double row_height(const Drawing *d) { return d->bar + d->memory + d->gap; }
static double y_of(const Drawing *d, int rank) { return d->top + rank * row_height(d); }

static void choose_heights(Drawing *d) {
  int n = d->panel->timeline->n_ranks;
  d->bar = n <= 16 ? 20 : n <= 64 ? 12 : 6;
  d->memory = d->panel->peak <= 0 ? 0 : n <= 16 ? 14 : n <= 64 ? 7 : 3;
  d->gap = n <= 16 ? 6 : n <= 64 ? 3 : 1;
}

/* --- tasks ------------------------------------------------------------------------------------------------ */

static void put_title(const Drawing *d, const TimelineTask *t) {
  Arena *a = d->arena;
  const PicturePanel *p = d->panel;
  str_printf(d->out, "<title>%s", picture_letter(picture_class(t->kind)));
  if (t->microbatch >= 0) str_printf(d->out, " of microbatch %d", t->microbatch);
  if (t->stage >= 0) str_printf(d->out, ", stage %d", t->stage);
  str_printf(d->out, "&#10;%s to %s", picture_time(a, p, t->start), picture_time(a, p, t->end));
  if (t->line) str_printf(d->out, "&#10;%s", picture_escape(a, t->line));
  int i = (int)(t - p->timeline->tasks);
  for (int k = d->first_in[i]; k < d->first_in[i + 1]; k++) {
    const TimelineTransfer *m = &p->timeline->transfers[d->in[k]];
    str_printf(d->out, "&#10;takes %s from rank %d", m->value ? picture_escape(a, m->value) : "a value", m->from);
    if (m->bytes) str_printf(d->out, ", %s", picture_bytes(a, (double)m->bytes));
  }
  str_puts(d->out, "</title>");
}

/* The longest label that fits: "F12", "12", or nothing. */
static void put_label(const Drawing *d, const TimelineTask *t, double x, double y, double width, double height) {
  char text[32];
  int n = t->microbatch >= 0 ? snprintf(text, sizeof text, "%s%d", picture_letter(picture_class(t->kind)), t->microbatch)
                             : snprintf(text, sizeof text, "%s", picture_letter(picture_class(t->kind)));
  int from = n * LETTER_WIDTH + 1 > width && t->microbatch >= 0 ? 1 : 0;
  if (height < 9 || (n - from) * LETTER_WIDTH + 1 > width) return;
  str_printf(d->out, "<text x=\"%.5g\" y=\"%.5g\">%s</text>", x + width / 2, y + height / 2 + 3.5, text + from);
}

static int chunk_of(const Drawing *d, const TimelineTask *t) {
  return t->stage >= 0 && t->stage < d->panel->timeline->n_stages ? d->panel->chunk[t->stage] : 0;
}

/* A hair less than it lasts, so that neighbours of one kind can be told apart. */
static void put_rect(const Drawing *d, double x, double y, double width, double height) {
  if (width > 3) width -= 0.6;
  str_printf(d->out, "<rect x=\"%.6g\" y=\"%.5g\" width=\"%.4g\" height=\"%.4g\"/>", x, y, width, height);
}

static void put_task(const Drawing *d, int i) {
  const TimelineTask *t = &d->panel->timeline->tasks[i];
  double x = x_of(d, t->start), width = x_of(d, t->end) - x, y = y_of(d, t->rank), height = d->bar;
  if (d->panel->lane[i] != PICTURE_WHOLE) height /= 2;
  if (d->panel->lane[i] == PICTURE_LOWER) y += height;
  str_printf(d->out, "<g class=\"%s%d\"", picture_letter(picture_class(t->kind)), chunk_of(d, t));
  if (d->details && (d->first_in[i] < d->first_in[i + 1] || d->first_out[i] < d->first_out[i + 1]))
    str_printf(d->out, " id=\"p%dt%d\"", d->number, i);
  str_putc(d->out, '>');
  if (d->details) put_title(d, t);
  put_rect(d, x, y, width, height);
  put_label(d, t, x, y, width, height);
  str_puts(d->out, "</g>\n");
}

/* Narrow neighbours, from one pixel to the next. */
typedef struct {
  double start, end;                    /* in pixels */
  double busy[PICTURE_CLASS_COUNT];
  bool open;
} Merged;

static void end_merged(const Drawing *d, Merged *m, int rank) {
  int most = 0;
  if (!m->open) return;
  for (int k = 1; k < PICTURE_CLASS_COUNT; k++)
    if (m->busy[k] > m->busy[most]) most = k;
  str_printf(d->out, "<g class=\"%s0\">", picture_letter((PictureClass)most));
  put_rect(d, m->start, y_of(d, rank), fmax(m->end - m->start, 0.3), d->bar);
  str_puts(d->out, "</g>\n");
  *m = (Merged){0};
}

static void merge(const Drawing *d, Merged *m, const TimelineTask *t) {
  double x = x_of(d, t->start), end = x_of(d, t->end);
  if (m->open && (end - m->start > NARROW || x - m->end > NARROW / 2)) end_merged(d, m, t->rank);
  if (!m->open) *m = (Merged){.start = x, .open = true};
  m->end = end;
  m->busy[picture_class(t->kind)] += t->end - t->start;
}

static void put_rank(const Drawing *d, int rank) {
  const PicturePanel *p = d->panel;
  Merged merged = {0};
  if (d->bar >= 9 || rank % 8 == 0)
    str_printf(d->out, "<text class=\"l\" x=\"%d\" y=\"%.5g\">rank %d</text>\n", LEFT - 6, y_of(d, rank) + d->bar / 2 + 3.5, rank);
  for (int i = p->first_task[rank]; i < p->first_task[rank + 1]; i++) {
    const TimelineTask *t = &p->timeline->tasks[i];
    if (x_of(d, t->end) - x_of(d, t->start) < NARROW) {
      merge(d, &merged, t);
      continue;
    }
    end_merged(d, &merged, rank);
    put_task(d, i);
  }
  end_merged(d, &merged, rank);
}

/* --- memory ------------------------------------------------------------------------------------------------- */

/* A staircase; of the levels in one pixel the highest counts. */
static void put_memory(const Drawing *d, int rank) {
  const PicturePanel *p = d->panel;
  const TimelineMemory *m = &p->timeline->memory[rank];
  double base = y_of(d, rank) + d->bar + 1 + d->memory, scale = (d->memory - 1) / p->peak, held = 0, x = LEFT;
  str_printf(d->out, "<path class=\"m\" d=\"M%d %.5g", LEFT, base);
  for (int i = 0; i < m->n_levels;) {
    double at = x_of(d, m->levels[i].time), highest = m->levels[i].value, last = highest;
    for (i++; i < m->n_levels && x_of(d, m->levels[i].time) - at < NARROW; i++) {
      last = m->levels[i].value;
      highest = fmax(highest, last);
    }
    if (at > x) str_printf(d->out, "H%.6g", at);
    if (highest != held) str_printf(d->out, "V%.5g", base - highest * scale);
    if (highest != last) str_printf(d->out, "h%.2gV%.5g", NARROW / 2, base - last * scale);
    held = last;
    x = at;
  }
  str_printf(d->out, "H%.6gV%.5gz\"/>", fmax(x, x_of(d, p->end)), base);
  str_printf(d->out, "<text class=\"r\" x=\"%d\" y=\"%.5g\">%s</text>\n", WIDTH - RIGHT + 5, base, picture_level(d->arena, p, m->peak));
}

/* --- transfers ---------------------------------------------------------------------------------------------- */

static int end_of(const TimelineTransfer *m, bool made) { return made ? m->made : m->used; }

/* A counting sort: transfers by the task that makes, or uses, them. */
static const int *index_by(const Drawing *d, bool made, const int **out_first) {
  const Timeline *t = d->panel->timeline;
  int *first = arena_alloc_array(d->arena, (size_t)t->n_tasks + 3, sizeof *first);
  int *list = arena_alloc_array(d->arena, (size_t)t->n_transfers + 1, sizeof *list);
  for (int i = 0; i < t->n_transfers; i++)
    if (end_of(&t->transfers[i], made) >= 0) first[end_of(&t->transfers[i], made) + 2]++;
  for (int i = 2; i <= t->n_tasks + 1; i++) first[i] += first[i - 1];
  for (int i = 0; i < t->n_transfers; i++)
    if (end_of(&t->transfers[i], made) >= 0) list[first[end_of(&t->transfers[i], made) + 1]++] = i;
  *out_first = first;
  return list;
}

static void put_arrow(const Drawing *d, const TimelineTransfer *m) {
  double down = m->to > m->from ? 1 : 0;
  double y0 = y_of(d, m->from) + d->bar * down, y1 = y_of(d, m->to) + d->bar * (1 - down);
  str_printf(d->out, "<path class=\"a\" d=\"M%.6g %.5gL%.6g %.5g\" display=\"none\">", x_of(d, m->start), y0, x_of(d, m->end), y1);
  for (int k = 0; k < 2; k++) {
    int task = k ? m->used : m->made;
    if (task >= 0) str_printf(d->out, "<set attributeName=\"display\" to=\"inline\" begin=\"p%dt%d.mouseover\" end=\"p%dt%d.mouseout\"/>", d->number, task, d->number, task);
  }
  str_puts(d->out, "</path>\n");
}

/* Tasks that were merged have no box to stand on. */
static bool has_box(const Drawing *d, int task) {
  if (task < 0) return false;
  const TimelineTask *t = &d->panel->timeline->tasks[task];
  return x_of(d, t->end) - x_of(d, t->start) >= NARROW;
}

static void put_arrows(const Drawing *d) {
  const Timeline *t = d->panel->timeline;
  for (int i = 0; i < t->n_transfers; i++) {
    TimelineTransfer m = t->transfers[i];
    if (!has_box(d, m.made)) m.made = -1;
    if (!has_box(d, m.used)) m.used = -1;
    if (m.made >= 0 || m.used >= 0) put_arrow(d, &m);
  }
}

/* --- a panel ---------------------------------------------------------------------------------------------------- */

static double panel_height(const Drawing *d) { return TOP + row_height(d) * d->panel->timeline->n_ranks + 18; }

static void put_axis(const Drawing *d) {
  const PicturePanel *p = d->panel;
  double tick = picture_tick(p->span, 10), bottom = y_of(d, p->timeline->n_ranks);
  for (int i = 0; i * tick <= p->span * 1.0001; i++) {
    double x = x_of(d, i * tick);
    str_printf(d->out, "<path class=\"g\" d=\"M%.6g %.5gV%.6g\"/>", x, d->top - 4, bottom);
    str_printf(d->out, "<text class=\"t\" x=\"%.6g\" y=\"%.5g\">%s</text>\n", x, bottom + 12, picture_time(d->arena, p, i * tick));
  }
}

static void put_panel(Drawing *d, double top) {
  const PicturePanel *p = d->panel;
  d->top = top + TOP;
  str_printf(d->out, "<text class=\"h\" x=\"%d\" y=\"%.5g\">%s", LEFT, top + 15, picture_escape(d->arena, p->timeline->title ? p->timeline->title : ""));
  str_printf(d->out, "<tspan class=\"c\" dx=\"14\">%s</tspan></text>\n", picture_caption(d->arena, p));
  if (p->peak > 0)
    str_printf(d->out, "<text class=\"r\" x=\"%d\" y=\"%.5g\">%s</text>\n", WIDTH - RIGHT + 5, top + 15, p->timeline->memory_in_bytes ? "peak" : "live");
  put_axis(d);
  for (int r = 0; r < p->timeline->n_ranks; r++) {
    put_rank(d, r);
    if (p->peak > 0) put_memory(d, r);
  }
  if (d->details) put_arrows(d);
}

/* --- the whole ---------------------------------------------------------------------------------------------------- */

static bool has_class(const Picture *picture, PictureClass class) {
  for (int i = 0; i < picture->n; i++)
    for (int k = 0; k < picture->panels[i].timeline->n_tasks; k++)
      if (picture_class(picture->panels[i].timeline->tasks[k].kind) == class) return true;
  return false;
}

static void put_style(const Picture *picture, Str *out) {
  str_puts(out, "<style>text{font:10px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;text-anchor:middle;fill:#000;pointer-events:none}\n"
                ".h{font:600 13px system-ui,sans-serif;text-anchor:start;fill:#111}.c{font-weight:400;fill:#444}\n"
                ".l{text-anchor:end;fill:#333}.r{text-anchor:start;fill:#444}.t{fill:#555}\n"
                ".g{stroke:#d8d8d8;fill:none}.m{fill:#8a8a8a;fill-opacity:.6}\n"
                ".a{stroke:#000;stroke-width:1.6;fill:none;marker-end:url(#v);pointer-events:none}.v{fill:#000}\n"
                ".b{fill:#fff}\n"
                "@media(prefers-color-scheme:dark){.b{fill:#16181c}.h{fill:#f2f2f2}.c,.r{fill:#c4c4c4}.l{fill:#d4d4d4}.t{fill:#b0b0b0}"
                ".g{stroke:#33363c}.m{fill:#9a9a9a}.a{stroke:#fff}.v{fill:#fff}}\n");
  int chunks = 1;
  for (int i = 0; i < picture->n; i++) chunks = picture->panels[i].n_chunks > chunks ? picture->panels[i].n_chunks : chunks;
  for (int k = 0; k < PICTURE_CLASS_COUNT; k++)
    for (int c = 0; c < chunks && has_class(picture, (PictureClass)k); c++)
      str_printf(out, ".%s%d rect{fill:#%06x}", picture_letter((PictureClass)k), c, picture_fill((PictureClass)k, c, chunks));
  str_puts(out, "</style>\n");
}

static void put_legend(const Picture *picture, Str *out, double y) {
  double x = LEFT;
  for (int k = 0; k < PICTURE_CLASS_COUNT; k++) {
    if (!has_class(picture, (PictureClass)k)) continue;
    const char *meaning = picture_meaning((PictureClass)k);
    str_printf(out, "<g class=\"%s0\"><rect x=\"%.5g\" y=\"%.5g\" width=\"16\" height=\"14\"/><text x=\"%.5g\" y=\"%.5g\">%s</text></g>",
               picture_letter((PictureClass)k), x, y, x + 8, y + 10.5, picture_letter((PictureClass)k));
    str_printf(out, "<text class=\"r\" x=\"%.5g\" y=\"%.5g\">%s</text>\n", x + 21, y + 10.5, meaning);
    x += 21 + LETTER_WIDTH * (double)strlen(meaning) + 16;
  }
  bool shades = false;
  const char *memory = picture_memory_meaning(picture);
  for (int i = 0; i < picture->n; i++) shades |= picture->panels[i].n_chunks > 1;
  str_printf(out, "<text class=\"r\" x=\"%.5g\" y=\"%.5g\">%s%s%s%s</text>\n", x, y + 10.5, memory ? "grey: " : "", memory ? memory : "",
             memory && shades ? "; " : "", shades ? "paler: later stages of a rank" : "");
}

void picture_svg(Arena *arena, const Timeline *const *timelines, int n, Str *out) {
  Picture picture = picture_plan(arena, timelines, n);
  Drawing *drawings = arena_alloc_array(arena, (size_t)n, sizeof *drawings);
  double height = 8;
  for (int i = 0; i < n; i++) {
    Drawing *d = &drawings[i];
    *d = (Drawing){.arena = arena, .out = out, .panel = &picture.panels[i], .number = i};
    d->details = timelines[i]->n_tasks <= MAX_DETAILS;
    d->in = index_by(d, false, &d->first_in);
    d->sent = index_by(d, true, &d->first_out);
    choose_heights(d);
    height += panel_height(d) + PANEL_GAP;
  }
  str_printf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %.0f\" width=\"%d\" height=\"%.0f\" role=\"img\">\n", WIDTH, height, WIDTH, height);
  str_printf(out, "<title>%s</title>\n", picture_escape(arena, timelines[0]->title ? timelines[0]->title : "timeline"));
  put_style(&picture, out);
  str_printf(out, "<defs><marker id=\"v\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"6\" markerHeight=\"6\" orient=\"auto\">"
                  "<path class=\"v\" d=\"M0 0L8 4L0 8z\"/></marker></defs>\n");
  str_printf(out, "<path class=\"b\" d=\"M0 0H%dV%.0fH0z\"/>\n", WIDTH, height);
  double top = 4;
  for (int i = 0; i < n; i++) {
    put_panel(&drawings[i], top);
    top += panel_height(&drawings[i]) + (i + 1 < n ? PANEL_GAP : 6);
  }
  put_legend(&picture, out, top);
  str_puts(out, "</svg>\n");
}
