// Products of fragments of a warp on tensor cores: bf16 operands, f32 accumulators. All 32 lanes call these functions, in
// one place. Lane l has g = l / 4 and t = l % 4; a register holds two values, the one with the lower index in its lower
// half (PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type"):
//   A [16, 16]   a[0]: (g, 2t) (g, 2t + 1)    a[1]: rows + 8    a[2]: columns + 8    a[3]: rows + 8, columns + 8
//   B [16, 8]    b[0]: (2t, g) (2t + 1, g)    b[1]: rows + 8
//   C [16, 8]    c[0], c[1]: (g, 2t) (g, 2t + 1)    c[2], c[3]: rows + 8
// The sums of 16 products are made in an order that differs between chips: results agree within rounding, not in bits.
// For checks (not __CUDACC__) runtime/check/warp.c computes the same from the same fragments.
#ifndef PP_CUDA_MMA_CUH
#define PP_CUDA_MMA_CUH

#include "runtime/kernels/cuda/math.cuh"

// C += A · B.
PP_DEVICE void pp_mma_bf16(float c[4], const uint32_t a[4], const uint32_t b[2]) {
#ifdef __CUDACC__
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  check_mma_bf16(c, a, b, __FILE__, __LINE__);
#endif
}

// Two values as one register of a fragment.
PP_DEVICE uint32_t pp_mma_pair(pp_bf16 low, pp_bf16 high) { return (uint32_t)low | (uint32_t)high << 16; }

#ifdef __CUDACC__
PP_DEVICE uint32_t pp_shared_address(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }
#endif

// ldmatrix: four matrices of 8 × 8 values from shared memory. Lane l brings the address of row l % 8 of matrix l / 8, 16
// bytes, aligned. out[m]: of matrix m this lane's (g, 2t) (g, 2t + 1). So for a tile [16, 16] of A in row-major order,
// lane l points to row l % 16, column l / 16 · 8, and gets a[0…3].
PP_DEVICE void pp_load_matrices(uint32_t out[4], const pp_bf16 *row) {
#ifdef __CUDACC__
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(pp_shared_address(row)) : "memory");
#else
  check_load_matrices(out, row, 4, 0, __FILE__, __LINE__);
#endif
}

// The same of the transposes: out[m] holds (2t, g) (2t + 1, g) of matrix m. So for a tile [16, 16] in row-major order that
// is B, lane l points to row l % 16, column l / 16 · 8, and gets b[0], b[1] of its left half, then of its right half.
PP_DEVICE void pp_load_transposed(uint32_t out[4], const pp_bf16 *row) {
#ifdef __CUDACC__
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(pp_shared_address(row)) : "memory");
#else
  check_load_matrices(out, row, 4, 1, __FILE__, __LINE__);
#endif
}

#endif
