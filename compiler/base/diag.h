// Diagnostics: places in sources, errors with a caret, and faults of ppc.
//
// Errors are collected and printed together by diag_flush, in the order in
// which they were found, in gcc's form:
//
//   model.pp:12:7: error: unknown name 'lenght'
//     let n = lenght + 1;
//             ^
//   model.pp:3:7: note: did you mean 'length'?
//
// A phase stops being reported after 20 errors ("too many errors"); call
// diag_start_phase between phases.
#pragma once

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#include "compiler/base/arena.h"
#include "compiler/base/str.h"

typedef struct {
  int file;  // index of a source of the Diag
  int line;  // from 1; 0 = no place
  int col;   // from 1, in bytes
} Loc;

typedef struct Diag Diag;

Diag *diag_create(void);
// Takes NULL.
void diag_destroy(Diag *diag);

// Copies both. `length` bytes of text (it may hold NULs); returns the index.
int diag_add_source_bytes(Diag *diag, const char *name, const char *text,
                          size_t length);
// The same for a NUL-terminated text.
int diag_add_source(Diag *diag, const char *name, const char *text);

int diag_source_count(const Diag *diag);
const char *diag_source_name(const Diag *diag, int file);
const char *diag_source_text(const Diag *diag, int file);
size_t diag_source_length(const Diag *diag, int file);

void diag_error(Diag *diag, Loc loc, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void diag_warning(Diag *diag, Loc loc, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
// Belongs to the diagnostic before it, and is dropped together with it.
void diag_note(Diag *diag, Loc loc, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void diag_verror(Diag *diag, Loc loc, const char *format, va_list args)
    __attribute__((format(printf, 3, 0)));

// All errors since creation, those over the cap included.
int diag_error_count(const Diag *diag);
int diag_warning_count(const Diag *diag);

// The cap counts anew from here.
void diag_start_phase(Diag *diag);

// An attempt whose diagnostics may be forgotten: diag_rewind drops what was
// reported since diag_mark, if nothing was flushed in between.
typedef struct {
  int n_items, n_errors, n_warnings, n_phase_errors;
  bool dropping;
} DiagMark;
DiagMark diag_mark(const Diag *diag);
void diag_rewind(Diag *diag, DiagMark mark);

// True when the cap of this phase is reached: a loop may give up.
bool diag_is_full(const Diag *diag);

// ANSI colours in what is printed from here on (off at first).
void diag_set_color(Diag *diag, bool on);

// Prints what was collected since the last flush to stderr.
void diag_flush(Diag *diag);
// The same into a buffer (tests, fuzzing).
void diag_flush_to(Diag *diag, Str *out_text);

// "model.pp:12" (the file without its folders), or "model.pp" without a line,
// or "<no place>"; lives as long as the Diag.
const char *diag_loc_name(Diag *diag, Loc loc);

// A fault of ppc itself: prints the place in ppc's source and aborts.
#define bug(...) bug_at(__FILE__, __LINE__, __VA_ARGS__)
_Noreturn void bug_at(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

// What bug() names besides file and line, e.g. the running pass; a string
// constant or NULL.
void bug_set_pass(const char *pass_name);
const char *bug_pass(void);
