// Follows `use`: a work list of files, each loaded once, so that a cycle of
// uses ends by itself.
#include "dsl/load.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "dsl/parser.h"

typedef struct {
  Arena *arena;
  Diag *diag;
  DslProgram *program;
  Map by_path;  // path → AstFile *, so far
  Map missing;  // path → itself: what had errors or isn't there
} Loader;

// --- reading ---------------------------------------------------------------

// The whole file with a NUL, or NULL and why not.
static char *read_file(Arena *arena, const char *path, size_t *out_length,
                       const char **out_reason) {
  *out_reason = NULL;
  FILE *stream = fopen(path, "rb");
  struct stat info;
  if (!stream || fstat(fileno(stream), &info) != 0) {
    *out_reason = strerror(errno);
  } else if (S_ISDIR(info.st_mode)) {
    *out_reason = "it is a directory";
  } else {
    // One byte beyond the limit is enough for the parser to refuse it.
    size_t room = DSL_MAX_SOURCE_BYTES + 1;
    if (S_ISREG(info.st_mode) && (size_t)info.st_size < room)
      room = (size_t)info.st_size;
    char *text = arena_alloc(arena, room + 1);
    *out_length = fread(text, 1, room, stream);
    if (!ferror(stream)) {
      fclose(stream);
      return text;
    }
    *out_reason = strerror(errno);
  }
  if (stream) fclose(stream);
  return NULL;
}

// "models/gpt2.pp", "nn" → "models/nn.pp".
static const char *path_beside(Arena *arena, const char *path,
                               const char *name) {
  const char *slash = strrchr(path, '/');
  int directory = slash ? (int)(slash - path) + 1 : 0;
  return arena_printf(arena, "%.*s%s.pp", directory, path, name);
}

static const DslLibFile *find_library(const char *name) {
  for (int i = 0; i < dsl_library_count; i++)
    if (strcmp(dsl_library[i].name, name) == 0) return &dsl_library[i];
  return NULL;
}

// --- files -----------------------------------------------------------------

static AstFile *add_source(Loader *l, const char *path, const char *text,
                           size_t length) {
  int source = diag_add_source_bytes(l->diag, path, text, length);
  AstFile *file =
      dsl_parse_with_names(l->arena, l->diag, &l->program->names, source);
  if (!file) {
    map_put(l->arena, &l->missing, path, (void *)path);
    return NULL;
  }
  map_put(l->arena, &l->by_path, path, file);
  VEC_PUSH(l->arena, &l->program->files, file);
  return file;
}

static void report_missing(Loader *l, const AstItem *use, const char *path,
                           const char *reason) {
  diag_error(l->diag, use->name_loc, "there is no file '%s' to use: %s", path,
             reason);
  StrGuess guess = str_guess_start(use->name);
  for (int i = 0; i < dsl_library_count; i++)
    str_guess_try(&guess, dsl_library[i].name);
  if (guess.best)
    diag_note(l->diag, use->name_loc, "the library has '%s'", guess.best);
}

// The used file, loaded now or before; NULL after an error.
static AstFile *load_used(Loader *l, const AstFile *from, const AstItem *use) {
  bool in_library = str_starts_with(from->path, "<library>/");
  const char *path = path_beside(l->arena, from->path, use->name);
  AstFile *known = map_get(&l->by_path, path);
  if (known || map_get(&l->missing, path)) return known;
  const char *reason = "not in the library";
  size_t length = 0;
  const char *text =
      in_library ? NULL : read_file(l->arena, path, &length, &reason);
  if (text) return add_source(l, path, text, length);
  const DslLibFile *library = find_library(use->name);
  if (!library) {
    report_missing(l, use, path, reason);
    return NULL;
  }
  path = arena_printf(l->arena, "<library>/%s.pp", use->name);
  known = map_get(&l->by_path, path);
  if (known || map_get(&l->missing, path)) return known;
  return add_source(l, path, library->text, strlen(library->text));
}

static void follow_uses(Loader *l, AstFile *file) {
  for (int i = 0; i < file->uses.n; i++)
    file->uses.at[i]->use = load_used(l, file, file->uses.at[i]);
}

static const AstTrain *find_train(const AstFile *file) {
  for (int i = 0; i < file->items.n; i++)
    if (file->items.at[i]->kind == ITEM_TRAIN) return file->items.at[i]->train;
  return NULL;
}

// A library file that no file need name; NULL after an error in it.
static AstFile *load_library(Loader *l, const char *name) {
  const DslLibFile *library = find_library(name);
  if (!library) bug("the library has no '%s'", name);
  const char *path = arena_printf(l->arena, "<library>/%s.pp", name);
  AstFile *known = map_get(&l->by_path, path);
  return known ? known
               : add_source(l, path, library->text, strlen(library->text));
}

static Loader start(Arena *arena, Diag *diag) {
  return (Loader){.arena = arena,
                  .diag = diag,
                  .program = arena_alloc(arena, sizeof(DslProgram))};
}

static DslProgram *finish(Loader *l, int errors_before) {
  DslProgram *program = l->program;
  for (int i = 0; i < program->files.n; i++)
    follow_uses(l, program->files.at[i]);
  if (diag_error_count(l->diag) != errors_before) return NULL;
  program->train = find_train(program->main);
  return dsl_resolve(l->arena, l->diag, program) ? program : NULL;
}

static bool add_main(Loader *l, const char *path) {
  size_t length = 0;
  const char *reason;
  const char *text = read_file(l->arena, path, &length, &reason);
  if (text)
    l->program->main =
        add_source(l, arena_strdup(l->arena, path), text, length);
  else
    diag_error(l->diag, (Loc){0}, "can't read '%s': %s", path, reason);
  return text;
}

DslProgram *dsl_load(Arena *arena, Diag *diag, const char *path) {
  int errors = diag_error_count(diag);
  Loader l = start(arena, diag);
  return add_main(&l, path) ? finish(&l, errors) : NULL;
}

DslProgram *dsl_load_text(Arena *arena, Diag *diag, const char *name,
                          const char *text) {
  int errors = diag_error_count(diag);
  Loader l = start(arena, diag);
  l.program->main =
      add_source(&l, arena_strdup(arena, name), text, strlen(text));
  return finish(&l, errors);
}

// The use is added behind name resolution: it is for the command line alone,
// and must make no name of the file ambiguous.
DslProgram *dsl_load_schedules(Arena *arena, Diag *diag, const char *path) {
  int errors = diag_error_count(diag);
  Loader l = start(arena, diag);
  if (path && !add_main(&l, path)) return NULL;
  AstFile *library = load_library(&l, "schedules");
  if (!path) l.program->main = library;
  DslProgram *program = finish(&l, errors);
  if (!program || !path || program->train) return program;
  AstItem *use = arena_alloc(arena, sizeof *use);
  *use = (AstItem){.kind = ITEM_USE, .name = "schedules", .use = library};
  VEC_PUSH(arena, &program->main->uses, use);
  VEC_PUSH(arena, &program->main->items, use);  // for what was meant
  return program;
}

AstItem *dsl_find_item(const AstFile *file, const char *name) {
  AstItem *own = map_get(&file->names, name);
  if (own) return own;
  for (int i = 0; i < file->uses.n; i++) {
    const AstFile *used = file->uses.at[i]->use;
    AstItem *item = used ? map_get(&used->names, name) : NULL;
    if (item) return item;
  }
  return NULL;
}
