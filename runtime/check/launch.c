/* libcudart: libraries of kernels and launches. kernels.fatbin must be there, as the driver would want it; what runs is
 * kernels.host.so beside it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core.h"

enum { MAX_ARGUMENTS = 512, ARGUMENT_BYTES = 32764, MAX_PATH = 1024, FATBIN_MAGIC_BYTES = 4 };

struct CUlib_st {
  CheckObject object;
  void *handle;
};

typedef struct Launch {
  const CheckKernel *kernel;
  dim3 grid, block;
  size_t shared_bytes;
  int n_arguments;
  uint32_t at[MAX_ARGUMENTS], bytes[MAX_ARGUMENTS]; /* in storage */
  _Alignas(16) char storage[];
} Launch;

/* ---- libraries ---- */

static bool has_magic(FILE *file) {
  uint32_t magic = 0;
  return fread(&magic, FATBIN_MAGIC_BYTES, 1, file) == 1 && magic == 0xba55ed50;
}

cudaError_t cudaLibraryLoadFromFile(cudaLibrary_t *out, const char *file, enum cudaJitOption *jit, void **jit_values,
                                    unsigned n_jit, enum cudaLibraryOption *options, void **values, unsigned n_options) {
  CHECK_CALL();
  (void)jit, (void)jit_values, (void)n_jit, (void)options, (void)values, (void)n_options;
  char path[MAX_PATH];
  FILE *fatbin = fopen(file, "rb");
  if (!fatbin) return check_error(cudaErrorFileNotFound);
  bool is_fatbin = has_magic(fatbin);
  fclose(fatbin);
  if (!is_fatbin) return check_error(cudaErrorInvalidKernelImage);
  const char *dot = strrchr(file, '.');
  snprintf(path, sizeof path, "%s%.*s.host.so", strchr(file, '/') ? "" : "./", (int)(dot ? dot - file : (long)strlen(file)),
           file);
  cudaLibrary_t library = calloc(1, sizeof *library);
  if (!library) return check_error(cudaErrorMemoryAllocation);
  library->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library->handle) check_fatal("internal", "%s", dlerror());
  check_object_begin(&library->object, "library", "%s", file);
  *out = library;
  return cudaSuccess;
}

cudaError_t cudaLibraryGetKernel(cudaKernel_t *kernel, cudaLibrary_t library, const char *name) {
  CHECK_CALL();
  if (!check_object_is_live(&library->object, "cudaLibraryGetKernel")) return check_error(cudaErrorInvalidResourceHandle);
  *kernel = (cudaKernel_t)(uintptr_t)check_kernel_find(library->handle, name);
  return *kernel ? cudaSuccess : check_error(cudaErrorSymbolNotFound);
}

/* The code stays: labels and tables may still be used. */
cudaError_t cudaLibraryUnload(cudaLibrary_t library) {
  CHECK_CALL();
  check_wait_device("cudaLibraryUnload");
  if (!check_object_end(&library->object, "cudaLibraryUnload")) return check_error(cudaErrorInvalidResourceHandle);
  return cudaSuccess;
}

/* ---- attributes of kernels ---- */

static cudaError_t set_attribute(const CheckKernel *kernel, enum cudaFuncAttribute attribute, int value) {
  if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout) return cudaSuccess;
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize)
    check_fatal("unsupported", "attribute %d of kernel %s", (int)attribute, check_kernel_name(kernel));
  check_kernel_allow_shared(kernel, (size_t)value);
  return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *out, const void *function) {
  CHECK_CALL();
  check_kernel_load(function);
  check_kernel_describe(function, out);
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void *function, enum cudaFuncAttribute attribute, int value) {
  CHECK_CALL();
  return set_attribute(function, attribute, value);
}

cudaError_t cudaKernelSetAttributeForDevice(cudaKernel_t kernel, enum cudaFuncAttribute attribute, int value, int device) {
  CHECK_CALL();
  (void)device;
  return set_attribute((const CheckKernel *)(uintptr_t)kernel, attribute, value);
}

/* ---- launches ---- */

/* A pointer may be anywhere in an argument, as in a struct. */
static void run_launch(Op *op) {
  Launch *launch = op->payload;
  void *arguments[MAX_ARGUMENTS];
  for (int i = 0; i < launch->n_arguments; i++) {
    arguments[i] = launch->storage + launch->at[i];
    for (size_t at = 0; at + sizeof(void *) <= launch->bytes[i]; at += sizeof(void *)) {
      void *pointer;
      memcpy(&pointer, (char *)arguments[i] + at, sizeof pointer);
      check_access_allow(pointer);
    }
  }
  check_kernel_run(launch->kernel, launch->grid, launch->block, arguments, launch->shared_bytes);
}

/* A launch copies its arguments. */
static void copy_arguments(Launch *launch, void **arguments, const size_t *bytes, size_t n) {
  uint32_t used = 0;
  launch->n_arguments = (int)n;
  for (size_t i = 0; i < n; i++) {
    launch->at[i] = used;
    launch->bytes[i] = (uint32_t)bytes[i];
    memcpy(launch->storage + used, arguments[i], bytes[i]);
    used += (uint32_t)((bytes[i] + 15) & ~(size_t)15);
  }
}

cudaError_t cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **arguments, size_t shared_bytes,
                             cudaStream_t stream) {
  CHECK_CALL();
  const CheckKernel *kernel = function;
  const size_t *bytes;
  size_t n = check_kernel_params(kernel, &bytes), all = 0;
  cudaError_t error = check_kernel_judge(kernel, grid, block, shared_bytes);
  if (error != cudaSuccess) return check_error(error);
  for (size_t i = 0; i < n; i++) all += (bytes[i] + 15) & ~(size_t)15;
  if (n > MAX_ARGUMENTS || all > ARGUMENT_BYTES)
    check_fatal("unsupported", "%s has %zu arguments of %zu bytes", check_kernel_name(kernel), n, all);
  Op *op = check_op_create(stream, sizeof(Launch) + all, "%s", check_kernel_name(kernel));
  if (check_kernel_load(kernel)) check_late_load(op);
  Launch *launch = op->payload;
  *launch = (Launch){.kernel = kernel, .grid = grid, .block = block, .shared_bytes = shared_bytes};
  copy_arguments(launch, arguments, bytes, n);
  op->start = run_launch;
  check_op_issue(op);
  check_step_some();
  return cudaSuccess;
}
