// Collects diagnostics and prints them with their source line and a caret.
#include "compiler/base/diag.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/base/vec.h"

#define MAX_ERRORS_PER_PHASE 20
#define MAX_SHOWN_COLUMNS 100  // a longer line is shown around its caret
#define TAB_WIDTH 8
#define RECENT_NAMES 64  // of places: millions of actions come from few lines

typedef enum { KIND_ERROR, KIND_WARNING, KIND_NOTE, KIND_COUNT } Kind;

static const char *const kind_names[] = {"error", "warning", "note"};
static const char *const kind_colors[] = {"\033[1;31m", "\033[1;35m",
                                          "\033[1;36m"};
_Static_assert(sizeof kind_names / sizeof *kind_names == KIND_COUNT, "names");

typedef struct {
  const char *name;
  const char *text;
  size_t length;
  VEC(size_t) line_starts;  // made at first use
} Source;

typedef struct {
  Kind kind;
  Loc loc;
  const char *message;
} Item;

struct Diag {
  Arena *arena;
  VEC(Source) sources;
  VEC(Item) items;
  int n_flushed;
  int n_errors, n_warnings;
  int n_phase_errors;
  bool dropping;  // the diagnostic before was dropped: so are its notes
  bool color;
  struct {
    Loc loc;
    const char *name;
  } recent[RECENT_NAMES];
};

Diag *diag_create(void) {
  Arena *arena = arena_create();
  Diag *diag = arena_alloc(arena, sizeof *diag);
  diag->arena = arena;
  return diag;
}

void diag_destroy(Diag *diag) {
  if (diag) arena_destroy(diag->arena);
}

// --- sources ---------------------------------------------------------------

int diag_add_source_bytes(Diag *diag, const char *name, const char *text,
                          size_t length) {
  Source source = {.name = arena_strdup(diag->arena, name),
                   .text = arena_strndup(diag->arena, text, length),
                   .length = length};
  VEC_PUSH(diag->arena, &diag->sources, source);
  return diag->sources.n - 1;
}

int diag_add_source(Diag *diag, const char *name, const char *text) {
  return diag_add_source_bytes(diag, name, text, strlen(text));
}

int diag_source_count(const Diag *diag) { return diag->sources.n; }

static const Source *source_at(const Diag *diag, int file) {
  if (file < 0 || file >= diag->sources.n) bug("no source number %d", file);
  return &diag->sources.at[file];
}

const char *diag_source_name(const Diag *diag, int file) {
  return source_at(diag, file)->name;
}

const char *diag_source_text(const Diag *diag, int file) {
  return source_at(diag, file)->text;
}

size_t diag_source_length(const Diag *diag, int file) {
  return source_at(diag, file)->length;
}

static void index_lines(Diag *diag, Source *source) {
  if (source->line_starts.n > 0) return;
  VEC_PUSH(diag->arena, &source->line_starts, 0);
  for (size_t i = 0; i < source->length; i++)
    if (source->text[i] == '\n')
      VEC_PUSH(diag->arena, &source->line_starts, i + 1);
}

// --- collecting ------------------------------------------------------------

static void add_item(Diag *diag, Kind kind, Loc loc, const char *format,
                     va_list args) {
  const char *message = arena_vprintf(diag->arena, format, args);
  VEC_PUSH(diag->arena, &diag->items, (Item){kind, loc, message});
}

void diag_verror(Diag *diag, Loc loc, const char *format, va_list args) {
  diag->n_errors++;
  diag->n_phase_errors++;
  diag->dropping = diag->n_phase_errors > MAX_ERRORS_PER_PHASE;
  if (!diag->dropping) {
    add_item(diag, KIND_ERROR, loc, format, args);
  } else if (diag->n_phase_errors == MAX_ERRORS_PER_PHASE + 1) {
    VEC_PUSH(diag->arena, &diag->items,
             (Item){KIND_ERROR, (Loc){0}, "too many errors"});
  }
}

void diag_error(Diag *diag, Loc loc, const char *format, ...) {
  va_list args;
  va_start(args, format);
  diag_verror(diag, loc, format, args);
  va_end(args);
}

void diag_warning(Diag *diag, Loc loc, const char *format, ...) {
  diag->n_warnings++;
  diag->dropping = diag->n_warnings > MAX_ERRORS_PER_PHASE;
  if (diag->dropping) return;
  va_list args;
  va_start(args, format);
  add_item(diag, KIND_WARNING, loc, format, args);
  va_end(args);
}

void diag_note(Diag *diag, Loc loc, const char *format, ...) {
  if (diag->dropping) return;
  va_list args;
  va_start(args, format);
  add_item(diag, KIND_NOTE, loc, format, args);
  va_end(args);
}

int diag_error_count(const Diag *diag) { return diag->n_errors; }
int diag_warning_count(const Diag *diag) { return diag->n_warnings; }

void diag_start_phase(Diag *diag) {
  diag->n_phase_errors = 0;
  diag->dropping = false;
}

DiagMark diag_mark(const Diag *diag) {
  return (DiagMark){diag->items.n, diag->n_errors, diag->n_warnings,
                    diag->n_phase_errors, diag->dropping};
}

void diag_rewind(Diag *diag, DiagMark mark) {
  if (diag->n_flushed > mark.n_items)
    bug("diagnostics to be forgotten were printed");
  diag->items.n = mark.n_items;
  diag->n_errors = mark.n_errors;
  diag->n_warnings = mark.n_warnings;
  diag->n_phase_errors = mark.n_phase_errors;
  diag->dropping = mark.dropping;
}

bool diag_is_full(const Diag *diag) {
  return diag->n_phase_errors > MAX_ERRORS_PER_PHASE;
}

// --- printing --------------------------------------------------------------

void diag_set_color(Diag *diag, bool on) { diag->color = on; }

// The line's bytes as they are shown: tabs expanded, what is not printable
// ASCII as '?'. Returns the display column (from 0) of byte `caret`.
static size_t show_line(const char *line, size_t length, size_t caret,
                        Str *out_text) {
  size_t column = 0;
  for (size_t i = 0; i < length; i++) {
    if (i == caret) column = out_text->length;
    unsigned char c = (unsigned char)line[i];
    if (c == '\t')
      str_pad(out_text, ' ', TAB_WIDTH - (int)(out_text->length % TAB_WIDTH));
    else
      str_putc(out_text, c >= 32 && c < 127 ? (char)c : '?');
  }
  return caret < length ? column : out_text->length;
}

// Cuts bytes of a very long line away before anything is expanded.
static void print_source_line(Diag *diag, Loc loc, Str *out) {
  Source *source = &diag->sources.at[loc.file];
  index_lines(diag, source);
  if (loc.line > source->line_starts.n) return;
  size_t start = source->line_starts.at[loc.line - 1];
  const char *line = source->text + start;
  const char *newline = memchr(line, '\n', source->length - start);
  size_t length = newline ? (size_t)(newline - line) : source->length - start;
  if (length > 0 && line[length - 1] == '\r') length--;
  size_t caret = loc.col > 0 ? (size_t)loc.col - 1 : 0;
  if (caret > length) caret = length;
  bool cut_left = length > MAX_SHOWN_COLUMNS && caret > MAX_SHOWN_COLUMNS / 2;
  size_t skip = cut_left ? caret - MAX_SHOWN_COLUMNS / 2 : 0;
  bool cut_right = length - skip > MAX_SHOWN_COLUMNS;
  size_t shown = cut_right ? MAX_SHOWN_COLUMNS : length - skip;
  Str text = {0};
  size_t column = show_line(line + skip, shown, caret - skip, &text);
  str_printf(out, "  %s%s%s\n", cut_left ? "..." : "", str_text(&text),
             cut_right ? "..." : "");
  str_pad(out, ' ', (int)column + (cut_left ? 5 : 2));
  str_puts(out, diag->color ? "\033[1;32m^\033[0m\n" : "^\n");
  str_free(&text);
}

static bool has_file(const Diag *diag, Loc loc) {
  return loc.file >= 0 && loc.file < diag->sources.n;
}

static void print_item(Diag *diag, const Item *item, Str *out) {
  const char *bold = diag->color ? "\033[1m" : "";
  const char *plain = diag->color ? "\033[0m" : "";
  bool placed = item->loc.line > 0 && has_file(diag, item->loc);
  str_puts(out, bold);
  if (placed)
    str_printf(out, "%s:%d:%d: ", diag_source_name(diag, item->loc.file),
               item->loc.line, item->loc.col);
  else
    str_puts(out, "ppc: ");
  str_printf(out, "%s%s: %s%s%s\n", diag->color ? kind_colors[item->kind] : "",
             kind_names[item->kind], plain, item->message, plain);
  if (placed) print_source_line(diag, item->loc, out);
}

void diag_flush_to(Diag *diag, Str *out_text) {
  for (; diag->n_flushed < diag->items.n; diag->n_flushed++)
    print_item(diag, &diag->items.at[diag->n_flushed], out_text);
}

void diag_flush(Diag *diag) {
  Str text = {0};
  diag_flush_to(diag, &text);
  fwrite(str_text(&text), 1, text.length, stderr);
  fflush(stderr);
  str_free(&text);
}

static const char *make_loc_name(Diag *diag, Loc loc) {
  const char *name = diag_source_name(diag, loc.file);
  const char *slash = strrchr(name, '/');
  if (slash && slash[1]) name = slash + 1;
  if (loc.line <= 0) return name;
  return arena_printf(diag->arena, "%s:%d", name, loc.line);
}

const char *diag_loc_name(Diag *diag, Loc loc) {
  if (!has_file(diag, loc)) return "<no place>";
  unsigned i = ((unsigned)loc.line + 7 * (unsigned)loc.file) % RECENT_NAMES;
  bool same = diag->recent[i].name && diag->recent[i].loc.file == loc.file &&
              diag->recent[i].loc.line == loc.line;
  if (!same) diag->recent[i].name = make_loc_name(diag, loc);
  diag->recent[i].loc = loc;
  return diag->recent[i].name;
}

// --- faults ----------------------------------------------------------------

static const char *running_pass;  // for bug() alone

void bug_set_pass(const char *pass_name) { running_pass = pass_name; }

const char *bug_pass(void) { return running_pass; }

void bug_at(const char *file, int line, const char *format, ...) {
  fprintf(stderr, "ppc: internal error at %s:%d", file, line);
  if (running_pass) fprintf(stderr, " in pass %s", running_pass);
  fprintf(stderr, ": ");
  va_list args;
  va_start(args, format);
  vfprintf(stderr, format, args);
  va_end(args);
  fprintf(stderr, "\n");
  abort();
}
