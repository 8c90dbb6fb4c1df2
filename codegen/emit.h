/* Plan → text. Everything is built in memory; nothing is written when something fails. */
#ifndef PPC_EMIT_H
#define PPC_EMIT_H

#include "compiler/base/arena.h"
#include "compiler/base/str.h"
#include "compiler/base/vec.h"
#include "compiler/plan.h"

typedef struct {
  const char *path;   /* relative to DIR: "stage_0.c" */
  const char *text;
  size_t size;
  bool executable;
} EmitFile;
typedef VEC(EmitFile) EmitFiles;

/* codegen/program.c: stage_K.c/.h, rank_R.c, Makefile, launch.sh, mpmd.conf, plan.json, threads.c. */
void emit_program(Arena *arena, const Plan *plan, EmitFiles *files);
/* codegen/c/kernels.c: kernels.c and kernels.h; each kernel once, as a C function with restrict
 * pointers, built for three instruction sets and chosen at start. */
void emit_kernels_c(Arena *arena, const Plan *plan, EmitFiles *files);
/* The text of a call of kernel k: "add_layer_norm_512x128(x, y, w, out);" is made by emit_program;
 * a kernel's parameters are: [const pp_call *call,] inputs…, outputs… */

#endif
