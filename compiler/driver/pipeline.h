/* The compiler from the model's text to the plan, and what dumps need on the way. */
#ifndef PPC_PIPELINE_H
#define PPC_PIPELINE_H

#include "compiler/compiler.h"

typedef struct {
  Arena *arena;
  Diag *diag;
  bool without_events;   /* the plan is read, no program made from it: events runs only to be verified */
  Ir *ir;
  Program *program;      /* after elaborate: lives as long as the IR */
  const Plan *plan;      /* null when it stopped earlier */
  const char *last_pass; /* that ran without errors */
} Pipeline;

/* The passes in their order, ended by null. */
extern const char *const pipeline_passes[];

/* Runs all passes on the model in `path`, or stops behind the pass `last` (null: all, and makes the plan).
 * False after errors, which stand in `diag`. */
bool pipeline_run(Pipeline *p, const char *path, const CompileOptions *options, const char *last);
/* The same for a text in memory; `name` stands for its path. */
bool pipeline_run_text(Pipeline *p, const char *name, const char *text, const CompileOptions *options, const char *last);
/* Takes a half-made one. The plan lives on in the arena. */
void pipeline_destroy(Pipeline *p);

#endif
