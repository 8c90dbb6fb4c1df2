// Loading a program: the main file and all it uses, parsed and resolved.
#pragma once

#include "dsl/ast.h"

// The embedded library, made from dsl/lib/*.pp by dsl/embed.sh.
typedef struct {
  const char *name;  // "nn", as in `use nn;`
  const char *text;
} DslLibFile;

extern const DslLibFile dsl_library[];
extern const int dsl_library_count;

typedef struct DslProgram {
  VEC(AstFile *) files;   // files.at[0] is the main file
  AstFile *main;
  const AstTrain *train;  // of the main file; NULL when it has none
  Map names;              // every interned name
} DslProgram;

// Loads `path`, follows `use x;` (beside the using file, then the embedded
// library), parses everything and runs dsl_resolve. NULL after errors.
DslProgram *dsl_load(Arena *arena, Diag *diag, const char *path);

// The same for a text in memory; `name` stands for its path.
DslProgram *dsl_load_text(Arena *arena, Diag *diag, const char *name,
                          const char *text);

// For schedules alone: `path` (NULL: none) and the library's schedules, which
// are in sight of the command line as if the file began with `use schedules;`.
DslProgram *dsl_load_schedules(Arena *arena, Diag *diag, const char *path);

// The item that `name` means at file level in `file`: its own, else that of a
// file it uses (uses are not passed on). NULL: none, perhaps a builtin.
// An ambiguous name was already reported by dsl_resolve.
AstItem *dsl_find_item(const AstFile *file, const char *name);

// Name checks that need no evaluation: duplicates, unknown names, ambiguous
// names, statements out of place, the keys of `train`. Reports to the Diag;
// false after errors.
bool dsl_resolve(Arena *arena, Diag *diag, const DslProgram *program);

// True for the names that are in sight everywhere without a declaration:
// functions on numbers, lists and tensors, dtypes, actions, data sources.
bool dsl_is_builtin(const char *name);
