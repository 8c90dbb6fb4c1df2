/* In: the predicted timeline, the options. Out: the files, all of them or none. */
#include "compiler/driver/pictures.h"

#include <stdio.h>
#include <string.h>

#include "compiler/driver/output.h"
#include "compiler/picture.h"
#include "compiler/schedule_csv.h"

static void warn_of_skew(Diag *diag, const char *path, TraceSkew skew) {
  if (skew.n == 0) return;
  diag_warning(diag, (Loc){0}, "%s: the clocks of the ranks differ by %.3g µs or more: %d transfer%s before %s, and count%s as of no length",
               path, skew.most * 1e6, skew.n, skew.n == 1 ? " ends" : "s end", skew.n == 1 ? "it begins" : "they begin",
               skew.n == 1 ? "s" : "");
}

const Trace *pictures_read_trace(Arena *arena, Diag *diag, const char *path, Str *out_error) {
  size_t size = 0;
  const char *text = output_read_file(arena, path, &size, out_error);
  const Trace *trace = text ? trace_read(arena, path, text, size, out_error) : NULL;
  if (trace) warn_of_skew(diag, path, trace_skew(trace));
  return trace;
}

/* The trace of the costs often is the one to draw too. */
static const Timeline *read_measured(Arena *arena, Diag *diag, const Options *o, const Trace *of_costs, Str *error) {
  bool known = of_costs && strcmp(o->trace, o->trace_costs) == 0;
  const Trace *trace = known ? of_costs : pictures_read_trace(arena, diag, o->trace, error);
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

/* A picture never takes the place of what it is drawn from. */
static bool is_apart(const Options *o, const char *option, const char *path, Str *error) {
  const char *schedule = schedule_is_csv(o->compile.schedule) ? o->compile.schedule : NULL;
  const char *const inputs[] = {o->files.n ? o->files.at[0] : NULL, schedule, o->trace, o->trace_costs};
  for (size_t i = 0; path && i < sizeof inputs / sizeof *inputs; i++) {
    if (!inputs[i] || !output_is_one_file(inputs[i], path)) continue;
    str_printf(error, "%s=%s: this file is read; name another", option, path);
    return false;
  }
  return true;
}

static bool are_apart(const Options *o, Str *error) {
  if (!is_apart(o, "--svg", o->svg, error) || !is_apart(o, "--html", o->html, error)) return false;
  if (!o->svg || !o->html || !output_is_one_file(o->svg, o->html)) return true;
  str_printf(error, "--svg and --html name one file, '%s'", o->html);
  return false;
}

static bool draw(Arena *arena, const Options *o, const Timeline *const *timelines, int n, Str *error) {
  Str svg = {0}, html = {0};
  OutputFile files[2];
  int n_files = 0;
  if (o->svg) picture_svg(arena, timelines, n, &svg);
  if (o->html) picture_html(arena, timelines, n, &html);
  if (o->svg) files[n_files++] = (OutputFile){o->svg, str_text(&svg), svg.length};
  if (o->html) files[n_files++] = (OutputFile){o->html, str_text(&html), html.length};
  bool fine = output_write_files(files, n_files, error);
  str_free(&svg);
  str_free(&html);
  return fine;
}

bool pictures_write(Arena *arena, Diag *diag, const Options *o, const Timeline *predicted, const Trace *of_costs) {
  const Timeline *timelines[2] = {predicted, NULL};
  int n = 1;
  Str error = {0};
  bool fine = are_apart(o, &error);
  if (fine && o->trace) {
    timelines[n++] = read_measured(arena, diag, o, of_costs, &error);
    diag_flush(diag);
    fine = timelines[1] && fits(predicted, timelines[1], o->trace, &error);
  }
  fine = fine && draw(arena, o, timelines, n, &error);
  if (!fine) fprintf(stderr, "ppc: %s\n", str_text(&error));
  str_free(&error);
  return fine;
}
