/* In: the predicted timeline, the options. Out: the files, each made whole by a temporary name. */
#include "compiler/driver/pictures.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

/* A file is renamed to its name, which must not take the place of a device or a link. Asked of both before either is
 * written. */
static bool can_be_written(Arena *arena, const char *path, Str *error) {
  struct stat st;
  if (!path) return true;
  const char *slash = strrchr(path, '/');
  const char *folder = !slash ? "." : slash == path ? "/" : arena_strndup(arena, path, (size_t)(slash - path));
  int why = access(folder, W_OK) == 0 ? 0 : errno;
  if (why) str_printf(error, "cannot write '%s': %s", path, strerror(why));
  else if (lstat(path, &st) == 0 && !S_ISREG(st.st_mode)) str_printf(error, "cannot write '%s': not a plain file", path);
  return error->length == 0;
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
  fine = fine && can_be_written(arena, o->svg, &error) && can_be_written(arena, o->html, &error);
  fine = fine && put(arena, o->svg, picture_svg, timelines, n, &error) && put(arena, o->html, picture_html, timelines, n, &error);
  if (!fine) fprintf(stderr, "ppc: %s\n", str_text(&error));
  str_free(&error);
  return fine;
}
