/* What emitted CUDA programs call, beside pp.h. Every function only enqueues work on the stream of the
 * running action; pointers are those of device memory. */
#ifndef PP_CUDA_H
#define PP_CUDA_H

#include "runtime/cuda/state.h"
#include "runtime/pp.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A function of kernels.fatbin with its geometry, which proves its bounds. */
typedef struct pp_kernel {
  const char *name;
  uint32_t grid[3], block;
  uint32_t shared_bytes; /* dynamic */
} pp_kernel;

/* A matrix product, planned at start: C[m, n] = op(A)·op(B) (+ C), row-major, batched over contiguous matrices. An epilogue
 * adds a vector [n] to each row; gelu of that is C, and gelu_aux stores the sum, too. */
typedef struct pp_product {
  int ta, tb;          /* A is stored [k, m]; B is stored [n, k] */
  int64_t batch, m, n, k;
  int operands, result; /* pp_dtype: f32 f32, f64 f64, bf16 f32, bf16 bf16; accumulation is in f32 or wider */
  int epilogue;         /* pp_epilogue */
  int tf32;             /* f32 operands are rounded to TF32 (10 bits behind the point) as they are multiplied */
} pp_product;

/* Of a statement whose indices are checked. */
typedef struct pp_place {
  const char *line, *task;
  int stage;
} pp_place;

/* Emitted tables (kernels_launch.c), referred to by pp_program.kernels and .products. */
extern const pp_kernel pp_kernels[];
extern const int pp_n_kernels;
extern const char pp_kernels_mark[];
extern const pp_product pp_products[];
extern const int pp_n_products;

void pp_launch(const pp_call *call, int kernel, void **arguments);
void pp_product_run(const pp_call *call, int product, const void *a, const void *b, void *c, int accumulate);
void pp_product_bias(const pp_call *call, int product, const void *a, const void *b, const void *bias, void *c);
/* `sum`: null for PP_EPILOGUE_GELU. */
void pp_product_gelu(const pp_call *call, int product, const void *a, const void *b, const void *bias, void *c, void *sum);
void pp_device_copy(const pp_call *call, void *to, const void *from, int64_t size_bytes);
void pp_device_clear(const pp_call *call, void *at, int64_t size_bytes);
/* Sample data of this step's microbatch, as pp_data_read, from pinned memory. */
void pp_device_data(const pp_call *call, int data, void *to);

/* What kernels are handed beside their tensors. */
const double *pp_device_control(const pp_call *call);         /* f64[PP_CONTROL_SIZE] */
const pp_random_state *pp_device_random(const pp_call *call);
double *pp_device_losses(const pp_call *call);                /* f64[n_microbatches], on the loss rank */
double *pp_device_counts(const pp_call *call);
double *pp_device_output(const pp_call *call, int output);    /* where partial results of this output are stored */
double *pp_device_scratch(const pp_call *call);               /* partial sums: partial_bytes of this stream */
pp_fault *pp_device_fault(const pp_call *call);               /* see runtime/kernels/cuda/fault.cuh */

#ifdef __cplusplus
}
#endif
#endif
