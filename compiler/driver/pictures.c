/* In: the predicted timeline, the options. Out: the files, each made whole by a temporary name. */
#include "compiler/driver/pictures.h"

#include <stdio.h>

#include "compiler/driver/output.h"
#include "compiler/picture.h"
#include "compiler/trace_read.h"

static const Timeline *read_measured(Arena *arena, const char *path, Str *error) {
  size_t size = 0;
  const char *text = output_read_file(arena, path, &size, error);
  const Trace *trace = text ? trace_read(arena, path, text, size, error) : NULL;
  return trace ? trace_timeline(arena, trace) : NULL;
}

/* Side by side only where that compares something. */
static bool fits(const Timeline *predicted, const Timeline *measured, const char *path, Str *error) {
  const struct { const char *what; int predicted, measured; } numbers[] = {
      {"ranks", predicted->n_ranks, measured->n_ranks},
      {"stages", predicted->n_stages, measured->n_stages},
      {"microbatches", predicted->n_microbatches, measured->n_microbatches}};
  for (int i = 0; i < 3; i++) {
    if (numbers[i].predicted == numbers[i].measured) continue;
    str_printf(error, "%s: a trace of %d %s; simulated are %d", path, numbers[i].measured, numbers[i].what, numbers[i].predicted);
    return false;
  }
  return true;
}

typedef void Draw(Arena *arena, const Timeline *const *timelines, int n, Str *out);

static bool put(Arena *arena, const char *path, Draw *draw, const Timeline *const *timelines, int n, Str *error) {
  Str text = {0};
  if (!path) return true;
  draw(arena, timelines, n, &text);
  bool fine = output_write_file(path, str_text(&text), text.length, error);
  str_free(&text);
  return fine;
}

bool pictures_write(Arena *arena, const Options *o, const Timeline *predicted) {
  const Timeline *timelines[2] = {predicted, NULL};
  int n = 1;
  Str error = {0};
  bool fine = true;
  if (o->trace) {
    timelines[n++] = read_measured(arena, o->trace, &error);
    fine = timelines[1] && fits(predicted, timelines[1], o->trace, &error);
  }
  fine = fine && put(arena, o->svg, picture_svg, timelines, n, &error) && put(arena, o->html, picture_html, timelines, n, &error);
  if (!fine) fprintf(stderr, "ppc: %s\n", str_text(&error));
  str_free(&error);
  return fine;
}
