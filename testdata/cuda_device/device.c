/* `device NAME GRID BLOCK [BYTES | table]` launches one kernel of kernels.cu; GRID is x or x,y. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../cuda_check/host.h"

enum { N = 1024, N_TABLE = 256 };

typedef struct Table { /* as in kernels.cu */
  float *at[3];
  int n[3];
} Table;

static float values[N];

/* x of 0, 1, 2, …; y as it comes; a, b, c side by side. */
static float *create_buffers(void) {
  static const Buffer buffers[] = {{"x", 0, sizeof values}, {"y", sizeof values, sizeof values},
                                   {"a", 2 * sizeof values, 1024}, {"b", 2 * sizeof values + 1024, 1024},
                                   {"c", 2 * sizeof values + 3072, 1024}};
  float *x;
  CUDA(cudaMalloc((void **)&x, 4 * sizeof values));
  host_name_buffers((char *)x, 4 * sizeof values, buffers, 5);
  for (int i = 0; i < N; i++) values[i] = (float)i;
  CUDA(cudaMemcpy(x, values, sizeof values, cudaMemcpyHostToDevice));
  return x;
}

int main(int n, char **arguments) {
  cudaLibrary_t library;
  cudaKernel_t kernel;
  unsigned grid_x, grid_y = 1;
  if (n < 4) return 2;
  sscanf(arguments[2], "%u,%u", &grid_x, &grid_y);
  bool is_table = n > 4 && strcmp(arguments[4], "table") == 0;
  size_t shared = n > 4 && !is_table ? (size_t)atol(arguments[4]) : 0;
  float *x = create_buffers(), *y = x + N;
  Table table = {{x + 2 * N, x + 2 * N + 256, x + 2 * N + 768}, {N_TABLE, N_TABLE, N_TABLE}};
  CUDA(cudaLibraryLoadFromFile(&library, "kernels.fatbin", NULL, NULL, 0, NULL, NULL, 0));
  CUDA(cudaLibraryGetKernel(&kernel, library, arguments[1]));
  CUDA(cudaLaunchKernel((const void *)kernel, (dim3){grid_x, grid_y, 1}, (dim3){(unsigned)atoi(arguments[3]), 1, 1},
                        is_table ? (void *[]){&table} : (void *[]){&x, &y}, shared, NULL));
  CUDA(cudaDeviceSynchronize());
  CUDA(cudaFree(x));
  return 0;
}
