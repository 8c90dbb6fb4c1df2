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
/* codegen/c/kernels.c: kernels.h, kernels.c and kernels_select.c.
 *
 * kernels.h declares `struct kernels`, a table with one function pointer per kernel, named like the
 * kernel, and `extern const struct kernels *kernels;`, which is constant after start. A call in
 * stage_K.c is
 *     #include "kernels.h"
 *     kernels->add_layer_norm_512x128(x, y, weight, out);
 * the arguments are: [call, when PlanKernel.uses_call] inputs…, outputs…, each a pointer to the
 * element type (float, double, int32_t; bool is uint8_t). Every buffer is 64-byte aligned.
 *
 * kernels.c is compiled once for each level, kernels_select.c once:
 *     kernels_v2.o: kernels.c   $(CC) $(CFLAGS) $(KERNEL_FLAGS) -march=x86-64-v2 -DPP_LEVEL=2 -c kernels.c
 *     kernels_v3.o, kernels_v4.o: the same with 3 and 4 (v4: also -mprefer-vector-width=512)
 *     elsewhere than x86-64: one object without -march and -DPP_LEVEL
 *     runtime/kernels/attention.c in the same way (attention_v2.o …); runtime/kernels/matmul.c once. Dispatch takes the best level that was linked and that the CPU has.
 *     KERNEL_FLAGS = -std=c11 -O3 -fno-math-errno -fno-trapping-math -ffp-contract=off -fopenmp-simd
 * All with -I. (includes are relative to DIR: "runtime/kernels/math.h"). Links -lopenblas, no -lm.
 * main() in rank_R.c begins with
 *     if (pp_kernels_select() != 0) return 1;      (declared in kernels.h; has printed why)
 * The variable PP_CPU_LEVEL=2|3 in the environment chooses a lower level than the CPU's (for tests:
 * all levels give the same bits).
 *
 * In place: an output may be the same buffer as an input only for the pairs in PlanKernel.in_place
 * (an elementwise kernel that reads that input at the index it writes, before it writes). These
 * pointers are emitted without restrict. No two outputs may overlap. */
void emit_kernels_c(Arena *arena, const Plan *plan, EmitFiles *files);

#endif
