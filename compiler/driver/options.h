/* The command line of ppc. One table of options drives parsing and --help of all commands. */
#ifndef PPC_OPTIONS_H
#define PPC_OPTIONS_H

#include "compiler/base/arena.h"
#include "compiler/base/vec.h"
#include "compiler/compiler.h"
#include "compiler/costs.h"

typedef enum {
  COMMAND_CHECK,
  COMMAND_COMPILE,
  COMMAND_RUN,
  COMMAND_DUMP,
  COMMAND_SIMULATE,
  COMMAND_FMT,
  COMMAND_COUNT,
  COMMAND_HELP /* help or version was printed: nothing to do */
} Command;

typedef enum { COLOR_AUTO, COLOR_ALWAYS, COLOR_NEVER } ColorMode;

typedef enum { FORMAT_MLIR, FORMAT_PRETTY, FORMAT_CSV } DumpFormat;

typedef VEC(const char *) Texts;
typedef VEC(Define) Defines;
typedef VEC(DataOverride) DataOverrides;

typedef struct {
  Command command;
  Texts files;
  ColorMode color;
  bool json, quiet, keep;
  const char *output;        /* -o DIR, null: none */
  CompileOptions compile;
  Defines defines;
  DataOverrides data;
  const char *model_only;    /* an option that was given and means nothing without a model, null: none */
  const char *schedule_only; /* one that means nothing with a model */
  /* simulate, and check of a schedule without a model */
  int64_t stages;            /* -1: the fewest that the schedule takes */
  StatedCosts costs;
  const char *svg, *html, *trace; /* of simulate */
  bool has_costs;            /* --cost was given */
  const char *trace_costs;   /* --costs=FILE, null: none */
  const char *gpu;           /* whose figures estimates take */
  double flops, bandwidth, link; /* per second, for estimates; 0: the machine's */
  /* dump */
  const char *after;         /* null: the last pass */
  int64_t stage, rank;       /* -1: all */
  DumpFormat format;
  bool pretty, irdl, locations; /* pretty: the same as that format */
  /* fmt */
  bool write, check;
  /* run: for the emitted programs, "--steps=3" */
  Texts run_arguments;
} Options;

/* Statuses of ppc. */
enum { STATUS_FINE = 0, STATUS_INPUT = 1, STATUS_USAGE = 2, STATUS_FAULT = 3, STATUS_FAILED = 4 };

/* Returns STATUS_FINE, or STATUS_USAGE after a message on stderr. Help goes to stdout. Texts are those
 * of argv, or in the arena. */
int options_parse(Arena *arena, int argc, char **argv, Options *out_options);

/* Is what goes to `fd` to be coloured: as --color says, else on a terminal unless NO_COLOR or TERM=dumb object. */
bool options_want_color(const Options *options, int fd);

#endif
