/* What emitted tasks call on a GPU, and the kernels of kernels.fatbin. A call enqueues its work on the compute stream
 * of the running action and returns; an error ends the job at the next action, for tasks hand back no status. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rank.h"

enum { PLAIN_SHARED_BYTES = 48 << 10 }; /* more has to be asked for */

/* --- loading ---------------------------------------------------------------------------------------- */

/* Kernels of the same names may be those of an older model. */
static pp_status check_mark(pp_rank *rank, const char *path) {
  const char *mark = rank->program->kernels_mark;
  cudaKernel_t found;
  if (!mark || cudaLibraryGetKernel(&found, rank->cuda->library, mark) == cudaSuccess) return PP_OK;
  return pp_fail(rank, PP_EXIT_INPUT, "%s: these are not the kernels of this program: run make (under the checking libraries: make check)", path);
}

static pp_status no_image(pp_rank *rank, const char *path) {
  return pp_fail(rank, PP_EXIT_INPUT, "%s has no kernels for device %d: name its architecture, make ARCH=…", path, rank->cuda->device);
}

/* The file beside the executable. */
static pp_status load_library(pp_rank *rank) {
  char path[4096];
  const char *name = rank->program->fatbin;
  ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
  while (n > 0 && path[n - 1] != '/') n--;
  if (n <= 0 || (size_t)n + strlen(name) >= sizeof path) return pp_fail(rank, PP_EXIT_FAILED, "the path of this program is too long");
  strcpy(path + n, name);
  if (access(path, R_OK) != 0) return pp_fail(rank, PP_EXIT_INPUT, "%s, the program's kernels, can't be read: run make", path);
  cudaError_t error = cudaLibraryLoadFromFile(&rank->cuda->library, path, NULL, NULL, 0, NULL, NULL, 0);
  if (error == cudaErrorNoKernelImageForDevice) return no_image(rank, path);
  if (error != cudaSuccess) return pp_fail(rank, PP_EXIT_INPUT, "%s can't be loaded: %s: run make again", path, pp_cuda_error(error));
  return check_mark(rank, path);
}

/* That its launches fit the device. Asking for the attributes also brings the kernel's code there, which may show only
 * now that there is none: at its first launch that might wait for kernels which wait for a peer. */
static pp_status check_kernel(pp_rank *rank, const pp_kernel *k, cudaKernel_t kernel) {
  struct cudaFuncAttributes has;
  int most_shared = 0;
  cudaError_t error = cudaFuncGetAttributes(&has, (const void *)kernel);
  if (error == cudaErrorNoKernelImageForDevice) return no_image(rank, rank->program->fatbin);
  PP_CUDA_TRY(rank, error);
  PP_CUDA_TRY(rank, cudaDeviceGetAttribute(&most_shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, rank->cuda->device));
  size_t shared = has.sharedSizeBytes + k->shared_bytes;
  if (k->block <= (unsigned)has.maxThreadsPerBlock && shared <= (size_t)most_shared) return PP_OK;
  return pp_fail(rank, PP_EXIT_INPUT, "device %d is too small for kernel %s: a block has %u threads and %zu bytes of shared memory, of at most %d and %d",
                 rank->cuda->device, k->name, k->block, shared, has.maxThreadsPerBlock, most_shared);
}

static pp_status load_kernel(pp_rank *rank, int i) {
  const pp_kernel *k = &rank->program->kernels[i];
  struct pp_cuda *cuda = rank->cuda;
  cudaError_t error = cudaLibraryGetKernel(&cuda->kernels[i], cuda->library, k->name);
  if (error != cudaSuccess) return pp_fail(rank, PP_EXIT_FAILED, "%s: kernel %s: %s", rank->program->fatbin, k->name, pp_cuda_error(error));
  PP_TRY(check_kernel(rank, k, cuda->kernels[i]));
  if (k->shared_bytes > PLAIN_SHARED_BYTES) {
    PP_CUDA_TRY(rank, cudaKernelSetAttributeForDevice(cuda->kernels[i], cudaFuncAttributeMaxDynamicSharedMemorySize, (int)k->shared_bytes,
                                                      cuda->device));
  }
  if (strcmp(k->name, "step_begin") == 0) cuda->step_begin = i;
  if (strcmp(k->name, "step_gate") == 0) cuda->step_gate = i;
  if (strcmp(k->name, "step_end") == 0) cuda->step_end = i;
  return PP_OK;
}

pp_status pp_cuda_kernels_create(pp_rank *rank) {
  struct pp_cuda *cuda = rank->cuda;
  int n = rank->program->n_kernels;
  cuda->kernels = calloc((size_t)n + 1, sizeof *cuda->kernels);
  if (!cuda->kernels) return pp_fail(rank, PP_EXIT_FAILED, "out of memory");
  PP_TRY(load_library(rank));
  for (int i = 0; i < n; i++) PP_TRY(load_kernel(rank, i));
  int has_steps = cuda->step_begin >= 0 && cuda->step_gate >= 0 && cuda->step_end >= 0;
  if (!rank->program->generate && !has_steps) return pp_fail(rank, PP_EXIT_BUG, "no kernels step_begin, step_gate, step_end");
  return PP_OK;
}

void pp_cuda_kernels_destroy(pp_rank *rank) {
  struct pp_cuda *cuda = rank->cuda;
  if (cuda->library) PP_CUDA_DO(rank, cudaLibraryUnload(cuda->library));
  free(cuda->kernels);
}

/* --- launching -------------------------------------------------------------------------------------- */

void pp_cuda_launch(pp_rank *rank, int kernel, void **arguments) {
  const pp_kernel *k = &rank->program->kernels[kernel];
  struct pp_cuda *cuda = rank->cuda;
  dim3 grid = {k->grid[0], k->grid[1], k->grid[2]}, block = {k->block, 1, 1};
  cudaError_t error = cudaLaunchKernel((const void *)cuda->kernels[kernel], grid, block, arguments, k->shared_bytes,
                                       cuda->compute[cuda->current]);
  pp_cuda_note_call(rank);
  if (error == cudaSuccess) return;
  char call[256];
  snprintf(call, sizeof call, "cudaLaunchKernel(%s)", k->name);
  pp_cuda_fail(rank, call, __FILE__, __LINE__, pp_cuda_error(error));
}

void pp_launch(const pp_call *call, int kernel, void **arguments) { pp_cuda_launch(call->rank, kernel, arguments); }

void pp_device_copy(const pp_call *call, void *to, const void *from, int64_t size_bytes) {
  struct pp_cuda *cuda = call->rank->cuda;
  PP_CUDA_DO(call->rank, cudaMemcpyAsync(to, from, (size_t)size_bytes, cudaMemcpyDeviceToDevice, cuda->compute[cuda->current]));
}

void pp_device_clear(const pp_call *call, void *at, int64_t size_bytes) {
  struct pp_cuda *cuda = call->rank->cuda;
  PP_CUDA_DO(call->rank, cudaMemsetAsync(at, 0, (size_t)size_bytes, cuda->compute[cuda->current]));
}

/* --- places on the device ---------------------------------------------------------------------------- */

const double *pp_device_control(const pp_call *call) { return pp_address(call->rank, call->rank->program->control); }
const pp_random_state *pp_device_random(const pp_call *call) { return &call->rank->cuda->state->random; }
double *pp_device_losses(const pp_call *call) { return pp_address(call->rank, call->rank->program->losses); }
double *pp_device_counts(const pp_call *call) { return pp_address(call->rank, call->rank->program->counts); }
double *pp_device_output(const pp_call *call, int output) { return pp_address(call->rank, call->rank->program->output_slots[output]); }
pp_fault *pp_device_fault(const pp_call *call) { return &call->rank->cuda->state->fault; }

/* The sums lie before the workspace of the products. */
double *pp_device_scratch(const pp_call *call) {
  struct pp_cuda *cuda = call->rank->cuda;
  return (double *)(void *)cuda->scratch[cuda->current];
}
