/* Timelines as one HTML page that needs nothing else: its style and script are compiler/page/, and its policy
 * forbids it the network. Tables hold the numbers for people and programs that don't run the script.
 *
 * Tasks and transfers are packed, for there may be millions: times as whole ticks (2^-31 of the span), numbers in
 * seven bits a byte with the lowest first, signed ones folded (0, -1, 1, -2, …), all in base64. A task is
 *   kind + 8·lane + 32·critical + 64·(stage + 1), microbatch + 1, start - the end before it on its rank,
 *   end - start, line + 1
 * and a transfer made - the one's before, used - made, from, to, microbatch + 1, start - the one's before,
 * end - start, value + 1, size + 1. Lines, values and sizes are numbers of lists. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/base/diag.h"
#include "compiler/base/json.h"
#include "compiler/base/map.h"
#include "compiler/base/vec.h"
#include "compiler/picture.h"

extern const char picture_page_css[], picture_page_js[];

#define TICKS 2147483648.0

/* --- packing ------------------------------------------------------------------------------------------------ */

static void put_unsigned(Str *s, uint64_t value) {
  for (; value >= 128; value >>= 7) str_putc(s, (char)((value & 127) | 128));
  str_putc(s, (char)value);
}

static void put_signed(Str *s, int64_t value) { put_unsigned(s, value < 0 ? 2 * (uint64_t)(-(value + 1)) + 1 : 2 * (uint64_t)value); }

static json_t *base64(const Str *bytes) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  Str out = {0};
  for (size_t i = 0; i < bytes->length; i += 3) {
    size_t n = bytes->length - i < 3 ? bytes->length - i : 3;
    uint32_t word = 0;
    for (size_t k = 0; k < 3; k++) word = word << 8 | (k < n ? (unsigned char)bytes->text[i + k] : 0);
    for (size_t k = 0; k < 4; k++) str_putc(&out, k <= n ? digits[word >> (18 - 6 * k) & 63] : '=');
  }
  json_t *text = json_string(str_text(&out));
  str_free(&out);
  return text;
}

/* Numbers for texts and sizes, from 1, in the order in which they come; 0: there is none. */
typedef struct {
  Arena *arena;
  Map texts;
  PtrMap sizes;
  json_t *list;
} Numbers;

static uint64_t number_of_text(Numbers *n, const char *text) {
  if (!text) return 0;
  uintptr_t known = (uintptr_t)map_get(&n->texts, text);
  if (known) return known;
  json_array_append_new(n->list, json_string(picture_utf8(n->arena, text)));
  map_put(n->arena, &n->texts, text, (void *)(uintptr_t)json_array_size(n->list));
  return json_array_size(n->list);
}

static uint64_t number_of_size(Numbers *n, int64_t size) {
  if (size <= 0) return 0;
  const void *key = (const void *)(uintptr_t)size;
  uintptr_t known = (uintptr_t)ptrmap_get(&n->sizes, key);
  if (known) return known;
  json_array_append_new(n->list, json_integer(size));
  ptrmap_put(n->arena, &n->sizes, key, (void *)(uintptr_t)json_array_size(n->list));
  return json_array_size(n->list);
}

/* --- one timeline --------------------------------------------------------------------------------------------- */

static json_t *text_of(Arena *arena, const char *text) { return json_string(picture_utf8(arena, text ? text : "")); }

static double tick_of(const PicturePanel *p) { return p->span / TICKS; }
static int64_t ticks(const PicturePanel *p, double time) { return llround(time / tick_of(p)); }

static void add_tasks(Arena *arena, const PicturePanel *p, json_t *o) {
  const Timeline *t = p->timeline;
  Numbers lines = {.arena = arena, .list = json_array()};
  Str bytes = {0};
  int64_t last = 0;
  for (int i = 0; i < t->n_tasks; i++) {
    const TimelineTask *task = &t->tasks[i];
    int64_t start = ticks(p, task->start), end = ticks(p, task->end);
    if (i == 0 || task->rank != task[-1].rank) last = 0;
    put_unsigned(&bytes, (uint64_t)task->kind + 8u * p->lane[i] + (task->critical ? 32u : 0u) + 64u * (uint64_t)(task->stage + 1));
    put_unsigned(&bytes, (uint64_t)(task->microbatch + 1));
    put_signed(&bytes, start - last);
    put_unsigned(&bytes, (uint64_t)(end > start ? end - start : 0));
    put_unsigned(&bytes, number_of_text(&lines, task->line));
    last = end > start ? end : start;
  }
  json_t *counts = json_array();
  for (int r = 0; r < t->n_ranks; r++) json_array_append_new(counts, json_integer(p->first_task[r + 1] - p->first_task[r]));
  json_put(o, "counts", counts);
  json_put(o, "nTasks", json_integer(t->n_tasks));
  json_put(o, "tasks", base64(&bytes));
  json_put(o, "lines", lines.list);
  str_free(&bytes);
}

static void add_transfers(Arena *arena, const PicturePanel *p, json_t *o) {
  const Timeline *t = p->timeline;
  Numbers values = {.arena = arena, .list = json_array()}, sizes = {.arena = arena, .list = json_array()};
  Str bytes = {0};
  int64_t made = 0, last = 0;
  for (int i = 0; i < t->n_transfers; i++) {
    const TimelineTransfer *m = &t->transfers[i];
    int64_t start = ticks(p, m->start), end = ticks(p, m->end);
    put_signed(&bytes, m->made - made);
    put_signed(&bytes, (int64_t)m->used - m->made);
    put_unsigned(&bytes, (uint64_t)m->from);
    put_unsigned(&bytes, (uint64_t)m->to);
    put_unsigned(&bytes, (uint64_t)(m->microbatch + 1));
    put_signed(&bytes, start - last);
    put_unsigned(&bytes, (uint64_t)(end > start ? end - start : 0));
    put_unsigned(&bytes, number_of_text(&values, m->value));
    put_unsigned(&bytes, number_of_size(&sizes, m->bytes));
    made = m->made;
    last = start;
  }
  json_put(o, "nTransfers", json_integer(t->n_transfers));
  json_put(o, "transfers", base64(&bytes));
  json_put(o, "values", values.list);
  json_put(o, "sizes", sizes.list);
  str_free(&bytes);
}

/* Bytes are whole; live stashes are kept to the thousandth. */
static void add_memory(const PicturePanel *p, json_t *o) {
  const Timeline *t = p->timeline;
  double scale = t->memory_in_bytes ? 1 : 1000;
  Str bytes = {0};
  json_t *counts = json_array(), *peaks = json_array();
  for (int r = 0; r < t->n_ranks; r++) {
    int64_t time = 0, value = 0;
    for (int i = 0; i < t->memory[r].n_levels; i++) {
      const TimelineLevel *l = &t->memory[r].levels[i];
      int64_t now = ticks(p, l->time), level = llround(l->value * scale);
      put_signed(&bytes, now - time);
      put_signed(&bytes, level - value);
      time = now, value = level;
    }
    json_array_append_new(counts, json_integer(t->memory[r].n_levels));
    json_array_append_new(peaks, json_real(t->memory[r].peak));
  }
  json_put(o, "memory", base64(&bytes));
  json_put(o, "levelCounts", counts);
  json_put(o, "levelScale", json_real(scale));
  json_put(o, "peaks", peaks);
  json_put(o, "peak", json_real(p->peak));
  json_put(o, "inBytes", json_boolean(t->memory_in_bytes));
  str_free(&bytes);
}

static json_t *panel_json(Arena *arena, const PicturePanel *p) {
  const Timeline *t = p->timeline;
  json_t *o = json_object(), *chunk = json_array();
  json_put(o, "title", text_of(arena, t->title));
  json_put(o, "ranks", json_integer(t->n_ranks));
  json_put(o, "span", json_real(p->span));
  json_put(o, "until", json_real(p->end));
  json_put(o, "tick", json_real(tick_of(p)));
  json_put(o, "unit", json_real(p->unit));
  json_put(o, "unitName", json_string(p->unit_name));
  json_put(o, "chunks", json_integer(p->n_chunks));
  for (int s = 0; s < t->n_stages; s++) json_array_append_new(chunk, json_integer(p->chunk[s]));
  json_put(o, "chunk", chunk);
  add_tasks(arena, p, o);
  add_transfers(arena, p, o);
  if (p->peak > 0) add_memory(p, o);
  return o;
}

/* --- what all share ------------------------------------------------------------------------------------------- */

static const char *const kind_texts[PP_TASK_KIND_COUNT] = {
    "forward", "backward", "backward, input half", "backward, weight half", "finish: tied gradients, norms", "decide: loss, norm, factor",
    "update", "refresh: copies of tied parameters", "prepare: what follows from parameters"};

static int most_chunks(const Picture *picture) {
  int most = 1;
  for (int i = 0; i < picture->n; i++) most = picture->panels[i].n_chunks > most ? picture->panels[i].n_chunks : most;
  return most;
}

static json_t *colors_json(Arena *arena, int n_chunks) {
  json_t *all = json_array();
  for (int k = 0; k < PICTURE_CLASS_COUNT; k++) {
    json_t *shades = json_array();
    for (int c = 0; c < n_chunks; c++) {
      unsigned fill = picture_fill((PictureClass)k, c, n_chunks);
      json_array_append_new(shades, json_pack("{s:s, s:s}", "fill", arena_printf(arena, "#%06x", fill), "ink", arena_printf(arena, "#%06x", picture_ink(fill))));
    }
    json_array_append_new(all, shades);
  }
  return all;
}

static json_t *data_json(Arena *arena, const Picture *picture) {
  json_t *o = json_object(), *panels = json_array(), *letters = json_array(), *kinds = json_array(), *class_of = json_array();
  for (int i = 0; i < picture->n; i++) json_array_append_new(panels, panel_json(arena, &picture->panels[i]));
  for (int k = 0; k < PICTURE_CLASS_COUNT; k++) json_array_append_new(letters, json_string(picture_letter((PictureClass)k)));
  for (int k = 0; k < PP_TASK_KIND_COUNT; k++) {
    json_array_append_new(kinds, json_string(kind_texts[k]));
    json_array_append_new(class_of, json_integer(picture_class((pp_task_kind)k)));
  }
  json_put(o, "panels", panels);
  json_put(o, "letters", letters);
  json_put(o, "kinds", kinds);
  json_put(o, "classOf", class_of);
  json_put(o, "colors", colors_json(arena, most_chunks(picture)));
  return o;
}

/* --- the page --------------------------------------------------------------------------------------------------- */

/* Inside a script nothing may look like its end. */
static void put_json(Str *out, json_t *json) {
  char *text = json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(17));
  if (!text) bug("picture: no memory for the page's data");
  for (const char *at = text; *at;) {
    size_t n = strcspn(at, "<");
    str_append(out, at, n);
    at += n;
    if (*at) str_puts(out, "\\u003c"), at++;
  }
  free(text);
}

static void put_legend(const Picture *picture, Str *out) {
  bool seen[PICTURE_CLASS_COUNT] = {false};
  const char *memory = picture_memory_meaning(picture);
  for (int i = 0; i < picture->n; i++) {
    const Timeline *t = picture->panels[i].timeline;
    for (int k = 0; k < t->n_tasks; k++) seen[picture_class(t->tasks[k].kind)] = true;
  }
  str_puts(out, "<ul class=\"legend\" aria-label=\"Legend\">");
  for (int k = 0; k < PICTURE_CLASS_COUNT; k++) {
    unsigned fill = picture_fill((PictureClass)k, 0, 1);
    if (seen[k])
      str_printf(out, "<li><span style=\"background:#%06x;color:#%06x\">%s</span>%s</li>", fill, picture_ink(fill), picture_letter((PictureClass)k),
                 picture_meaning((PictureClass)k));
  }
  if (memory) str_printf(out, "<li><span style=\"background:var(--memory)\">&nbsp;</span>%s</li>", memory);
  if (most_chunks(picture) > 1) str_puts(out, "<li>paler: later stages of a rank</li>");
  str_puts(out, "</ul>");
}

static bool has_path(const Picture *picture) {
  for (int i = 0; i < picture->n; i++)
    for (int k = 0; k < picture->panels[i].timeline->n_tasks; k++)
      if (picture->panels[i].timeline->tasks[k].critical) return true;
  return false;
}

static void put_bar(const Picture *picture, Str *out) {
  str_puts(out, "<div class=\"bar\"><button id=\"in\" aria-label=\"Zoom in\">+</button><button id=\"out\" aria-label=\"Zoom out\">−</button>"
                "<button id=\"all\">whole step</button>");
  if (has_path(picture)) str_puts(out, "<label><input type=\"checkbox\" id=\"path\"> critical path</label>");
  put_legend(picture, out);
  str_puts(out, "</div>\n");
}

static void put_table(Arena *arena, const PicturePanel *p, Str *out) {
  const Timeline *t = p->timeline;
  str_puts(out, "<details><summary>Numbers of each rank</summary><table><thead><tr><th scope=\"col\">rank</th><th scope=\"col\">tasks</th>"
                "<th scope=\"col\">work</th><th scope=\"col\">bubble</th><th scope=\"col\">of the step</th>");
  if (p->peak > 0) str_printf(out, "<th scope=\"col\">%s</th>", t->memory_in_bytes ? "peak" : "most live stashes");
  str_puts(out, "</tr></thead><tbody>");
  for (int r = 0; r < t->n_ranks; r++) {
    double work = picture_work(p, r), bubble = t->step_time - work;
    str_printf(out, "<tr><th scope=\"row\">%d</th><td>%d</td><td>%s</td><td>%s</td><td>%.1f %%</td>", r, p->first_task[r + 1] - p->first_task[r],
               picture_time(arena, p, work), picture_time(arena, p, bubble), t->step_time > 0 ? 100 * bubble / t->step_time : 0);
    if (p->peak > 0) str_printf(out, "<td>%s</td>", picture_level(arena, p, t->memory[r].peak));
    str_puts(out, "</tr>\n");
  }
  str_puts(out, "</tbody></table></details>");
}

static void put_panel(Arena *arena, const PicturePanel *p, int number, Str *out) {
  const char *title = picture_escape(arena, p->timeline->title ? p->timeline->title : ""), *caption = picture_caption(arena, p);
  str_printf(out, "<section><h2>%s</h2><p>%s</p>\n", title, caption);
  str_printf(out, "<div class=\"chart\" id=\"chart%d\" tabindex=\"0\" role=\"group\" aria-roledescription=\"timeline\" aria-label=\"%s; %s\"><canvas></canvas></div>\n",
             number, title, caption);
  put_table(arena, p, out);
  str_puts(out, "</section>\n");
}

void picture_html(Arena *arena, const Timeline *const *timelines, int n, Str *out) {
  Picture picture = picture_plan(arena, timelines, n);
  const char *title = picture_escape(arena, timelines[0]->title ? timelines[0]->title : "timeline");
  str_puts(out, "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\n"
                "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n");
  str_printf(out, "<title>%s</title>\n<style>\n%s</style></head>\n<body><h1>%s</h1>\n", title, picture_page_css,
             n > 1 ? "A step, predicted and measured" : timelines[0]->measured ? "A step, measured" : "A step, predicted");
  put_bar(&picture, out);
  for (int i = 0; i < n; i++) put_panel(arena, &picture.panels[i], i, out);
  str_puts(out, "<p class=\"keys\">Drag or <kbd>←</kbd> <kbd>→</kbd> to move, <kbd>+</kbd> <kbd>−</kbd> or Ctrl and the wheel to zoom, <kbd>0</kbd> for the whole step; "
                "<kbd>Shift</kbd> <kbd>←</kbd> <kbd>→</kbd> goes from task to task, <kbd>↑</kbd> <kbd>↓</kbd> from rank to rank. The pointer on a task shows its transfers.</p>\n"
                "<noscript><p>The charts need JavaScript; the tables don't.</p></noscript>\n"
                "<div id=\"tip\" hidden></div><div id=\"status\" class=\"status\" role=\"status\"></div>\n<script type=\"application/json\" id=\"data\">");
  json_t *data = data_json(arena, &picture);
  put_json(out, data);
  json_decref(data);
  str_puts(out, "</script>\n<script>\n");
  str_puts(out, picture_page_js);
  str_puts(out, "</script></body></html>\n");
}
