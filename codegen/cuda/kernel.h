/* A function of kernels.cu and how it is launched. Makers: kernel_body.c for fused kernels of the plan,
 * calls.c for instances of the templates in runtime/kernels/cuda/. kernels.c writes kernels.cu, kernels.h
 * and kernels_launch.c from the list of them. */
#ifndef PPC_CUDA_KERNEL_H
#define PPC_CUDA_KERNEL_H

#include "codegen/target.h"

/* The emitted texts, for a kernel `scale_512` with parameters (x: "const float *", out: "float *"):
 *   kernels.cu         extern "C" __global__ __launch_bounds__(256) void scale_512(const float *__restrict__ x, …) { … }
 *   kernels.h          void launch_scale_512(const pp_call *c, const float *x, float *out);
 *   kernels_launch.c   its body: pp_launch(c, SCALE_512, (void *[]){&x, &out}); and the row of pp_kernels:
 *                      {"scale_512", {2, 1, 1}, 256, 0}
 * A guarded kernel is one of an update task: its first parameter is `const double *control`, and it
 * begins with `if (control[PP_CONTROL_APPLY] == 0) return;` (the makers put both in). A kernel with random numbers has, after that,
 * `const pp_random_state *random, int microbatch`. */
typedef struct {
  const char *type; /* "const float *" */
  const char *name;
  bool is_restrict; /* nothing else of the call overlaps it */
} CudaParameter;

typedef struct {
  const char *name;      /* a C identifier, unique in the program */
  const char *comment;   /* what it computes, for the reader; may be null */
  int n_parameters;
  const CudaParameter *parameters;
  bool guarded, random;
  int64_t grid[3];
  int block;             /* threads, one dimension */
  int64_t shared_bytes;  /* dynamic */
  const char *body;      /* with its braces */
} CudaKernel;

/* kernel_body.c: the plan's kernel number `kernel` as device code; `guarded`: for statements of update tasks. */
CudaKernel cuda_fused_kernel(Arena *arena, const Plan *plan, int kernel, bool guarded);

/* kernels.c: kernels.cu, kernels.h and kernels_launch.c. A launch takes the call and what follows `control`,
 * `random` and `microbatch` among the parameters; those three it finds by itself: pp_device_control(c),
 * pp_device_random(c), c->microbatch. A name of a guarded variant is its maker's; stage_K.c takes it from the kernel. */
void emit_kernels_cuda(Arena *arena, const Plan *plan, int n_kernels, const CudaKernel *kernels, EmitFiles *files);

#endif
