/* A function of kernels.cu and how it is launched. Makers: kernel_body.c for fused kernels of the plan,
 * calls.c for instances of the templates in runtime/kernels/cuda/. kernels.c writes kernels.cu, kernels.h
 * and kernels_launch.c from the list of them. */
#ifndef PPC_CUDA_KERNEL_H
#define PPC_CUDA_KERNEL_H

#include "codegen/target.h"

/* The emitted texts, for a kernel `scale_512` with parameters (x: "const float *", out: "float *"):
 *   kernels.cu         extern "C" __global__ __launch_bounds__(256, 1) void scale_512(
 *                          const float *__restrict__ x, float *__restrict__ out) { … }
 *   kernels.h          void launch_scale_512(const pp_call *c, const float *x, float *out);
 *   kernels_launch.c   its body: pp_launch(c, kernel_scale_512, (void *[]){&x, &out}); and the row of pp_kernels:
 *                      {"scale_512", {2, 1, 1}, 256, 0}
 * Before these parameters there are, in this order, those that the launch finds by itself; kernels.c writes them:
 *   guarded   `const double *control`: a kernel of an update task; it begins with `if (control[PP_CONTROL_APPLY] == 0) return;`
 *             Not so where one of its own parameters is the control vector: then that one is called `control`.
 *   random    `const pp_random_state *random, int microbatch`
 *   partial   `double *partial`: pp_device_scratch(c)
 * A kernel takes those of its own parameters that its body names. */
typedef struct {
  const char *type; /* "const float *"; something that isn't a pointer is passed by value */
  const char *name; /* none of c, random, microbatch, partial; control: see above */
  bool is_restrict; /* nothing else of the call overlaps it */
} CudaParameter;

typedef struct CudaKernel {
  const char *name;      /* a C identifier, unique in the program */
  const char *comment;   /* what it computes, for the reader; may be null */
  const char *include;   /* what its body needs beside math.cuh, reduce.cuh and random.cuh: "gather.cuh"; may be null */
  int n_parameters;
  const CudaParameter *parameters;
  bool guarded, random, partial;
  int64_t grid[3];
  int block;             /* threads, one dimension */
  int min_blocks;        /* second launch bound; 0 stands for 1: registers as needed, so that nothing is spilled */
  int64_t shared_bytes;  /* dynamic */
  const char *body;      /* statements, indented by 2 */
  const struct CudaKernel *before; /* launched before it, by the same launch with the same parameters; may be null */
} CudaKernel;

/* kernel_body.c: the plan's kernel number `kernel` as device code; `guarded`: for statements of update tasks;
 * `control`: which of its inputs is the control vector, -1: none. */
CudaKernel cuda_fused_kernel(Arena *arena, const Plan *plan, int kernel, bool guarded, int control);

/* kernels.c: kernels.cu, kernels.h and kernels_launch.c. A launch takes the call and the kernel's own parameters.
 * The name of a guarded variant is its maker's; stage_K.c takes it from the kernel. */
void emit_kernels_cuda(Arena *arena, int n_kernels, const CudaKernel *kernels, EmitFiles *files);
/* Whether the launch finds the control vector by itself. */
bool cuda_kernel_finds_control(const CudaKernel *k);
/* Whether the kernel itself, apart from those launched before it, takes parameter number i. */
bool cuda_kernel_takes(const CudaKernel *k, int i);

#endif
