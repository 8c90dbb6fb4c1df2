/* `one_kernel NAME` launches one kernel of one_kernel.cu. */
#include <cuda_runtime_api.h>
#include <stdlib.h>

static void must(cudaError_t error) {
  if (error != cudaSuccess) exit(1);
}

int main(int n_arguments, char **arguments) {
  cudaLibrary_t library;
  cudaKernel_t kernel;
  float *x;
  int *count;
  if (n_arguments < 2) return 2;
  must(cudaLibraryLoadFromFile(&library, "one_kernel.fatbin", NULL, NULL, 0, NULL,
                               NULL, 0));
  must(cudaLibraryGetKernel(&kernel, library, arguments[1]));
  must(cudaMalloc((void **)&x, 64 * sizeof *x));
  must(cudaMalloc((void **)&count, sizeof *count));
  must(cudaMemsetAsync(x, 0, 64 * sizeof *x, NULL));
  must(cudaMemsetAsync(count, 0, sizeof *count, NULL));
  must(cudaLaunchKernel((const void *)kernel, (dim3){1, 1, 1}, (dim3){64, 1, 1},
                        (void *[]){&x, &count}, 0, NULL));
  must(cudaDeviceSynchronize());
  must(cudaFree(x));
  must(cudaFree(count));
  must(cudaLibraryUnload(library));
  return 0;
}
