// Device code right and wrong by CUDA's rules within one launch. The comment before a kernel says how it is launched and
// what is reported: // LAUNCH grid block [dynamic shared bytes | table]: kind: pattern of the report
// In a pattern the lines that end with an exclamation mark stand as such, in their order. All take x, 1024 floats set to
// their indices, and y, 1024 floats that nothing has written, or a table of such buffers a, b, c.
#include <cuda_pipeline.h>

#include "runtime/kernels/cuda/mma.cuh"

// --- barriers of parts of a warp -----------------------------------------------------------------------------------------

// LAUNCH 1 32: clean
extern "C" __global__ __launch_bounds__(32) void half_warps(float *x, float *y) {
  __shared__ float row[32];
  unsigned i = threadIdx.x, mask = 0xffffu << (i & 16);
  float sum = x[i];
  for (int lanes = 8; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(mask, sum, lanes);
  row[i] = sum;
  __syncwarp(mask);
  if (row[i ^ 15] != (i < 16 ? 120.0f : 376.0f)) __trap();
  __syncwarp();
  y[i] = row[i ^ 16];
}

// LAUNCH 1 32: race in a kernel: reads it at kernels.cu:!
extern "C" __global__ __launch_bounds__(32) void other_half(float *x, float *y) {
  __shared__ float row[32];
  unsigned i = threadIdx.x, mask = 0xffffu << (i & 16);
  row[i] = x[i];
  __syncwarp(mask);
  y[i] = row[i ^ 16]; // its own half has met, the other hasn't !
}

// LAUNCH 1 32: clean
extern "C" __global__ __launch_bounds__(32) void one_half_more(float *x, float *y) {
  unsigned i = threadIdx.x;
  float a = x[i];
  if (i < 16) a += __shfl_xor_sync(0xffffu, a, 1);
  float b = __shfl_xor_sync(0xffffffffu, a, 16); // the halves have made different numbers of shuffles
  if (b != (i < 16 ? (float)(i + 16) : (float)((i - 16) + ((i - 16) ^ 1)))) __trap();
  y[i] = b;
}

// LAUNCH 1 64: clean
extern "C" __global__ __launch_bounds__(64) void widths(float *x, float *y) {
  unsigned i = threadIdx.x, lane = i % 32;
  if (__shfl_down_sync(0xffffffffu, i, 3) != (lane < 29 ? i + 3 : i)) __trap();
  if (__shfl_up_sync(0xffffffffu, i, 3, 8) != (lane % 8 > 2 ? i - 3 : i)) __trap();
  if (__shfl_sync(0xffffffffu, i, 5, 16) != i / 16 * 16 + 5) __trap();
  if (__ballot_sync(0xffffffffu, lane % 2) != 0xaaaaaaaau || __popc(0xaaaaaaaau) != 16) __trap();
  if (!__any_sync(0xffffffffu, lane == 7) || __all_sync(0xffffffffu, lane == 7)) __trap();
  y[i] = x[i];
}

// LAUNCH 1 32: undefined shuffle: lane 0 reads lane 16, which takes no part in the __shfl_xor_sync
extern "C" __global__ __launch_bounds__(32) void absent_lane(float *x, float *y) {
  if (threadIdx.x < 16) y[threadIdx.x] = __shfl_xor_sync(0xffffu, x[threadIdx.x], 16);
}

// LAUNCH 1 32: misuse: thread [0-9]+ of block 0 calls __shfl_xor_sync at kernels.cu:! with mask 0x0000ffff
extern "C" __global__ __launch_bounds__(32) void not_named(float *x, float *y) {
  y[threadIdx.x] = __shfl_xor_sync(0xffffu, x[threadIdx.x], 1); // !
}

// LAUNCH 1 32: divergence: thread 0 \(and others\) waits in __shfl_xor_sync for lanes 0xffffffff at kernels.cu:!; thread 16 \(and others\) waits in __shfl_xor_sync for lanes 0xffffffff at kernels.cu:!
extern "C" __global__ __launch_bounds__(32) void two_places(float *x, float *y) {
  float a = x[threadIdx.x];
  if (threadIdx.x < 16) a += __shfl_xor_sync(0xffffffffu, a, 1); // !
  else a += __shfl_xor_sync(0xffffffffu, a, 2); // !
  y[threadIdx.x] = a;
}

// LAUNCH 2 64: divergence: block 0 never ends: thread 0 \(and others\) waits in __syncthreads at kernels.cu:!; thread 32 waits in __syncwarp
extern "C" __global__ __launch_bounds__(64) void barrier_and_warp(float *x, float *y) {
  if (threadIdx.x < 32) __syncthreads(); // !
  else if (threadIdx.x == 32) __syncwarp(0x3u);
  else if (threadIdx.x == 33) __syncthreads();
  y[threadIdx.x + blockIdx.x * 64] = x[threadIdx.x];
}

// --- bytes and halves ----------------------------------------------------------------------------------------------------

// LAUNCH 4 64: clean
extern "C" __global__ __launch_bounds__(64) void halves(float *x, float *y) {
  pp_bf16 *to = reinterpret_cast<pp_bf16 *>(y);
  unsigned i = blockIdx.x * 64 + threadIdx.x;
  to[i] = pp_bf16_from_f32(x[i]); // neighbours, perhaps of another block, write the other half
  if (pp_f32_from_bf16(to[i]) != (float)i) __trap();
  to[i] = to[i];
}

// LAUNCH 1 64: race in a kernel: two threads touch y.*, one writes, .* writes it at kernels.cu:(!|!)
extern "C" __global__ __launch_bounds__(64) void same_half(float *x, float *y) {
  pp_bf16 *to = reinterpret_cast<pp_bf16 *>(y);
  unsigned i = threadIdx.x;
  to[i] = pp_bf16_from_f32(x[i]); // !
  to[i & 62] = 0; // !
}

// LAUNCH 1 64: uninitialised: reads y\+?[0-9]* at kernels.cu:!
extern "C" __global__ __launch_bounds__(64) void half_unwritten(float *x, float *y) {
  pp_bf16 *to = reinterpret_cast<pp_bf16 *>(y);
  unsigned i = threadIdx.x;
  to[2 * i] = 0;
  __syncthreads();
  x[i] = pp_f32_from_bf16(to[i]); // !
}

// LAUNCH 1 64: clean
extern "C" __global__ __launch_bounds__(64) void bytes_then_words(float *x, float *y) {
  uint8_t *to = reinterpret_cast<uint8_t *>(y);
  unsigned i = threadIdx.x;
  to[i] = (uint8_t)i;
  __syncthreads();
  uint32_t word = reinterpret_cast<uint32_t *>(y)[i / 4];
  if (word != (i / 4 * 4) * 0x01010101u + 0x03020100u) __trap();
  __syncthreads();
  reinterpret_cast<uint16_t *>(y)[i] = 7;
  __syncthreads();
  y[i] = x[i];
}

// LAUNCH 1 64: race in a kernel: writes it at kernels.cu:!
extern "C" __global__ __launch_bounds__(64) void byte_beside(float *x, float *y) {
  uint8_t *to = reinterpret_cast<uint8_t *>(y);
  to[threadIdx.x | 1] = (uint8_t)x[threadIdx.x]; // !
}

// LAUNCH 1 64: race in a kernel: reads it at kernels.cu:!
extern "C" __global__ __launch_bounds__(64) void word_over_halves(float *x, float *y) {
  pp_bf16 *to = reinterpret_cast<pp_bf16 *>(y);
  unsigned i = threadIdx.x;
  to[i] = pp_bf16_from_f32(x[i]);
  x[i] = y[i / 2]; // !
}

// LAUNCH 2 32: clean
extern "C" __global__ __launch_bounds__(32) void vectors(float *x, float *y) {
  unsigned i = blockIdx.x * 32 + threadIdx.x;
  float4 four = reinterpret_cast<const float4 *>(x)[i];
  uint4 words = make_uint4(__float_as_uint(four.x), __float_as_uint(four.y), __float_as_uint(four.z), __float_as_uint(four.w));
  reinterpret_cast<uint4 *>(y)[i] = words;
  if (__ldg(&y[4 * i + 3]) != (float)(4 * i + 3)) __trap();
}

// --- dynamic shared memory, bounds ----------------------------------------------------------------------------------------

// LAUNCH 2 64 512: clean
extern "C" __global__ __launch_bounds__(64) void dynamic(float *x, float *y) {
  extern __shared__ __align__(16) unsigned char pp_shared[];
  float *tile = reinterpret_cast<float *>(pp_shared);
  unsigned i = threadIdx.x;
  tile[i] = x[i];
  tile[i + 64] = -x[i];
  __syncthreads();
  y[blockIdx.x * 64 + i] = tile[127 - i];
}

// LAUNCH 1 64 508: out of bounds: writes 4 bytes at kernels.cu:! behind the launch's dynamic shared memory
extern "C" __global__ __launch_bounds__(64) void dynamic_end(float *x, float *y) {
  extern __shared__ __align__(16) unsigned char pp_shared[];
  float *tile = reinterpret_cast<float *>(pp_shared);
  tile[2 * threadIdx.x + 1] = x[threadIdx.x]; // !
  y[threadIdx.x] = tile[2 * threadIdx.x + 1];
}

// LAUNCH 2 64 256: uninitialised: reads __shared__ memory at kernels.cu:!
extern "C" __global__ __launch_bounds__(64) void left_by_another_block(float *x, float *y) {
  extern __shared__ __align__(16) unsigned char pp_shared[];
  float *tile = reinterpret_cast<float *>(pp_shared);
  if (blockIdx.x == 0) tile[threadIdx.x] = x[threadIdx.x];
  else y[threadIdx.x] = tile[threadIdx.x]; // !
}

// LAUNCH 2 64: race in a kernel: threads of other blocks
extern "C" __global__ __launch_bounds__(64) void two_blocks(float *x, float *y) {
  y[threadIdx.x] = x[threadIdx.x];
}

// LAUNCH 2 64: race in a kernel: writes it at kernels.cu:!, threads of other blocks read it before
extern "C" __global__ __launch_bounds__(64) void read_by_all_blocks(float *x, float *y) {
  float sum = 0.0f;
  for (unsigned k = 0; k < 64; k++) sum += x[k];
  __syncthreads();
  if (blockIdx.x == 1) x[threadIdx.x] = sum; // !
  y[blockIdx.x * 64 + threadIdx.x] = sum;
}

// LAUNCH 1 65: misuse: launch of too_many .* more threads than its __launch_bounds__
extern "C" __global__ __launch_bounds__(64) void too_many(float *x, float *y) { y[threadIdx.x] = x[threadIdx.x]; }

// LAUNCH 1 32 50000: misuse: launch of too_much .* more dynamic shared memory than 48 KiB or its attribute allows
extern "C" __global__ __launch_bounds__(64) void too_much(float *x, float *y) { y[threadIdx.x] = x[threadIdx.x]; }

// LAUNCH 1 32 47104: misuse: launch of too_much_together: 47104 bytes of dynamic shared memory and 4096 that it declares are more than 48 KiB
extern "C" __global__ __launch_bounds__(32) void too_much_together(float *x, float *y) {
  __shared__ float tile[1024];
  for (unsigned i = threadIdx.x; i < 1024; i += 32) tile[i] = x[threadIdx.x];
  y[threadIdx.x] = tile[threadIdx.x];
}

// LAUNCH 1 32 45056: clean
extern "C" __global__ __launch_bounds__(32) void as_much_as_fits(float *x, float *y) {
  __shared__ float tile[1024];
  for (unsigned i = threadIdx.x; i < 1024; i += 32) tile[i] = x[threadIdx.x];
  y[threadIdx.x] = tile[threadIdx.x];
}

// LAUNCH 1,65536 32: misuse: launch of too_high .* a grid has at most
extern "C" __global__ __launch_bounds__(64) void too_high(float *x, float *y) { y[threadIdx.x] = x[threadIdx.x]; }

// LAUNCH 1 32: trap: trapped: thread 31 of block 0 calls __trap\(\) at kernels.cu:!
extern "C" __global__ __launch_bounds__(32) void trapped(float *x, float *y) {
  if (x[threadIdx.x] == 31.0f) __trap(); // !
  y[threadIdx.x] = 0.0f;
}

// --- asynchronous copies ----------------------------------------------------------------------------------------------------

// LAUNCH 1 64: clean
extern "C" __global__ __launch_bounds__(64) void copies(float *x, float *y) {
  __shared__ __align__(16) float tile[2][256];
  unsigned i = threadIdx.x;
  for (int k = 0; k < 2; k++) {
    __pipeline_memcpy_async(&tile[k][4 * i], &x[256 * k + 4 * i], 16);
    __pipeline_commit();
  }
  __pipeline_wait_prior(1);
  y[4 * i] = tile[0][4 * i]; // its own
  __syncthreads();
  y[256 + i] = tile[0][255 - i];
  __pipeline_wait_prior(0);
  __syncthreads();
  if (tile[1][i] != (float)(256 + i)) __trap();
  __syncthreads();
  __pipeline_memcpy_async(&tile[0][4 * i], &x[4 * i], 16, 8);
  __pipeline_commit();
  __pipeline_wait_prior(0);
  if (tile[0][4 * i + 1] != x[4 * i + 1] || tile[0][4 * i + 2] != 0.0f) __trap();
}

// LAUNCH 1 64: race in a kernel: reads it at kernels.cu:!, its own copy, not waited for
extern "C" __global__ __launch_bounds__(64) void copy_unwaited(float *x, float *y) {
  __shared__ __align__(16) float tile[64];
  __pipeline_memcpy_async(&tile[threadIdx.x], &x[threadIdx.x], 4);
  __pipeline_commit();
  y[threadIdx.x] = tile[threadIdx.x]; // !
}

// LAUNCH 1 64: race in a kernel: reads it at kernels.cu:!
extern "C" __global__ __launch_bounds__(64) void copy_without_barrier(float *x, float *y) {
  __shared__ __align__(16) float tile[64];
  __pipeline_memcpy_async(&tile[threadIdx.x], &x[threadIdx.x], 4);
  __pipeline_commit();
  __syncthreads();
  __pipeline_wait_prior(0); // too late for the others
  y[threadIdx.x] = tile[63 - threadIdx.x]; // !
}

// LAUNCH 1 64: race in a kernel: writes it at kernels.cu:!
extern "C" __global__ __launch_bounds__(64) void copy_into_use(float *x, float *y) {
  __shared__ __align__(16) float tile[64];
  tile[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = tile[63 - threadIdx.x];
  __pipeline_memcpy_async(&tile[threadIdx.x], &x[threadIdx.x], 4); // others may still read it !
  __pipeline_commit();
  __pipeline_wait_prior(0);
}

// --- fragments -----------------------------------------------------------------------------------------------------------------

// A row-major [16, 16] and B row-major [16, 16] in shared memory, C = A · B in y.
__device__ static inline void fragments(const pp_bf16 *a_tile, const pp_bf16 *b_tile, float *y) {
  int lane = (int)threadIdx.x, g = lane / 4, t = lane % 4;
  uint32_t a[4], b[4];
  pp_load_matrices(a, a_tile + lane % 16 * 16 + lane / 16 * 8);
  pp_load_transposed(b, b_tile + lane % 16 * 16 + lane / 16 * 8);
  for (int i = 0; i < 4; i++) { // what ldmatrix gives is what the table says
    int row = g + i % 2 * 8, column = 2 * t + i / 2 * 8;
    if (a[i] != pp_mma_pair(a_tile[row * 16 + column], a_tile[row * 16 + column + 1])) __trap();
  }
  for (int half = 0; half < 2; half++) {
    float c[4] = {};
    pp_mma_bf16(c, a, b + 2 * half);
    for (int i = 0; i < 4; i++) y[(g + i / 2 * 8) * 16 + half * 8 + 2 * t + i % 2] = c[i];
  }
}

// LAUNCH 1 32: clean
extern "C" __global__ __launch_bounds__(32) void product(float *x, float *y) {
  __shared__ __align__(16) pp_bf16 a[256], b[256];
  for (int i = (int)threadIdx.x; i < 256; i += 32) {
    a[i] = pp_bf16_from_f32((float)(i % 7 - 3));
    b[i] = pp_bf16_from_f32((float)(i % 5 - 2) + 0.25f * x[1]);
  }
  __syncwarp();
  fragments(a, b, y);
  __syncwarp();
  for (int i = (int)threadIdx.x; i < 256; i += 32) {
    float sum = 0.0f;
    for (int k = 0; k < 16; k++) sum += pp_f32_from_bf16(a[i / 16 * 16 + k]) * pp_f32_from_bf16(b[k * 16 + i % 16]);
    if (y[i] != sum) __trap(); // exact in f32
  }
}

// LAUNCH 1 32: race in a kernel: two threads touch __shared__ memory
extern "C" __global__ __launch_bounds__(32) void product_too_soon(float *x, float *y) {
  __shared__ __align__(16) pp_bf16 a[256];
  for (int i = (int)threadIdx.x; i < 256; i += 32) a[i] = pp_bf16_from_f32(x[i % 7]);
  fragments(a, a, y);
}

// LAUNCH 1 32: divergence: waits in mma
extern "C" __global__ __launch_bounds__(32) void product_of_some(float *x, float *y) {
  float c[4] = {};
  uint32_t a[4] = {}, b[2] = {};
  if (threadIdx.x != 3) pp_mma_bf16(c, a, b);
  else __syncwarp();
  y[threadIdx.x] = x[threadIdx.x] + c[0];
}

// --- tables of pointers, atomics --------------------------------------------------------------------------------------------------

struct Table {
  float *at[3];
  int n[3];
};

// LAUNCH 3 64 table: clean
extern "C" __global__ __launch_bounds__(64) void table(const __grid_constant__ Table t) {
  for (int i = (int)threadIdx.x; i < t.n[blockIdx.x]; i += 64) t.at[blockIdx.x][i] = (float)i;
}

// LAUNCH 1 64 table: out of bounds: writes 4 bytes at y\+4 at kernels.cu:!, outside its arguments
extern "C" __global__ __launch_bounds__(64) void table_of_others(const __grid_constant__ Table t) {
  float *y = t.at[0] - 1024; // in the same allocation
  if (threadIdx.x == 1) y[1] = 1.0f; // !
}

// LAUNCH 2 64: clean
extern "C" __global__ __launch_bounds__(64) void atomics(float *x, float *y) {
  atomicAdd(&x[0], 1.0f);
  atomicMax(reinterpret_cast<int *>(&x[1]), 7);
  y[blockIdx.x * 64 + threadIdx.x] = x[2];
}

// LAUNCH 2 64: race in a kernel: reads it at kernels.cu:!
extern "C" __global__ __launch_bounds__(64) void read_beside_atomics(float *x, float *y) {
  atomicAdd(&x[0], 1.0f);
  if (blockIdx.x == 1) y[threadIdx.x] = x[0]; // !
}
