/* `device NAME GRID BLOCK [BYTES | table]` launches one kernel of kernels.cu; GRID is x or x,y. */
#include <cuda_runtime_api.h>
#include <nvtx3/nvToolsExtMem.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 1024, N_TABLE = 256 };

typedef struct Table { /* as in kernels.cu */
  float *at[3];
  int n[3];
} Table;

static float values[N];

static void must(cudaError_t error) {
  if (error != cudaSuccess) exit(1);
}

typedef struct Buffer {
  const char *name;
  size_t offset, bytes;
} Buffer;

static void name_buffer(char *arena, Buffer buffer) {
  nvtxMemVirtualRangeDesc_t range = {buffer.bytes, arena + buffer.offset};
  nvtxMemRegionHandle_t handle = NULL;
  nvtxMemRegionsRegister(NULL, &(nvtxMemRegionsRegisterBatch_t){
      .extCompatID = NVTX_EXT_COMPATID_MEM, .structSize = sizeof(nvtxMemRegionsRegisterBatch_t),
      .regionType = NVTX_MEM_TYPE_VIRTUAL_ADDRESS, .regionCount = 1, .regionDescElementSize = sizeof range,
      .regionDescElements = &range, .regionHandleElementsOut = &handle});
  nvtxMemRegionNameDesc_t name = {.regionRefType = NVTX_MEM_REGION_REF_TYPE_HANDLE, .nameType = NVTX_MESSAGE_TYPE_ASCII,
                                  .region.handle = handle, .name.ascii = buffer.name};
  nvtxMemRegionsName(NULL, &(nvtxMemRegionsNameBatch_t){
      .extCompatID = NVTX_EXT_COMPATID_MEM, .structSize = sizeof(nvtxMemRegionsNameBatch_t), .regionCount = 1,
      .regionElementSize = sizeof name, .regionElements = &name});
}

/* x of 0, 1, 2, …; y as it comes; a, b, c side by side. */
static float *create_buffers(void) {
  static const Buffer buffers[] = {{"x", 0, sizeof values}, {"y", sizeof values, sizeof values},
                                   {"a", 2 * sizeof values, 1024}, {"b", 2 * sizeof values + 1024, 1024},
                                   {"c", 2 * sizeof values + 3072, 1024}};
  float *x;
  must(cudaMalloc((void **)&x, 4 * sizeof values));
  for (int i = 0; i < 5; i++) name_buffer((char *)x, buffers[i]);
  for (int i = 0; i < N; i++) values[i] = (float)i;
  must(cudaMemcpy(x, values, sizeof values, cudaMemcpyHostToDevice));
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
  must(cudaLibraryLoadFromFile(&library, "kernels.fatbin", NULL, NULL, 0, NULL, NULL, 0));
  must(cudaLibraryGetKernel(&kernel, library, arguments[1]));
  must(cudaLaunchKernel((const void *)kernel, (dim3){grid_x, grid_y, 1}, (dim3){(unsigned)atoi(arguments[3]), 1, 1},
                        is_table ? (void *[]){&table} : (void *[]){&x, &y}, shared, NULL));
  must(cudaDeviceSynchronize());
  must(cudaLibraryUnload(library));
  must(cudaFree(x));
  return 0;
}
