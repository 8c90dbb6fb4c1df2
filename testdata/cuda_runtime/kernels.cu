// The tasks of runtime/chain.c on a GPU, with the CPU's bits: sums in its order, by one thread where that is short.
#include "runtime/kernels/cuda/step.cuh"

enum { STAGES = 4, MICROBATCHES = 4, ROWS = 2 };

extern "C" __global__ __launch_bounds__(1) void step_begin(pp_step_state *state, double *step) { pp_step_begin(state, step); }
extern "C" __global__ __launch_bounds__(1) void step_gate(const pp_step_state *state, double *control) { pp_step_gate(state, control); }
#ifndef NONFINITE_SKIPS
#define NONFINITE_SKIPS false
#endif
extern "C" __global__ __launch_bounds__(1) void step_end(pp_step_state *state, const double *control, const double *losses, const double *norms) {
  pp_step_end<MICROBATCHES, STAGES, NONFINITE_SKIPS>(state, control, losses, norms);
}

// Tokens in place of which numbers are made; one outside its table is a fault.
extern "C" __global__ __launch_bounds__(128) void numbers(int *tokens, int n, pp_fault *fault, int microbatch, const pp_random_state *random,
                                                          int bad_step) {
  int i = (int)threadIdx.x;
  if (i == 0 && bad_step && random->step == (uint64_t)bad_step && !fault->set) {
    fault->place = 0;
    fault->microbatch = microbatch;
    fault->position = 3;
    fault->value = 70000;
    fault->rows = 65536;
    fault->set = 1;
  }
  for (; i < n; i += (int)blockDim.x) {
    float value = (float)tokens[i] / 256.0f;
    tokens[i] = (int)pp_bits_f32(value);
  }
}

extern "C" __global__ __launch_bounds__(128) void forward(const float *x, const float *w, float *y, int width) {
  for (int i = (int)threadIdx.x; i < ROWS * width; i += (int)blockDim.x) y[i] = x[i] * w[i % width];
}

extern "C" __global__ __launch_bounds__(1) void loss(const float *y, float *dy, double *losses, double *counts, double *output,
                                                     const pp_random_state *random, int microbatch, int width, int bad_step, int empty_step) {
  int n = ROWS * width;
  double sum = 0, mean = 0;
  for (int i = 0; i < n; i++) {
    float e = y[i] - 1;
    sum += (double)(e * e);
    mean += (double)y[i];
    dy[i] = 2 * e / (float)n;
  }
  bool bad = bad_step && random->step == (uint64_t)bad_step && microbatch == 1;
  losses[microbatch] = bad ? (double)NAN : sum / (double)n;
  counts[microbatch] = empty_step && random->step == (uint64_t)empty_step ? 0.0 : 1.0;
  output[microbatch] = mean / (double)n;
}

extern "C" __global__ __launch_bounds__(128) void backward(const float *x, const float *dy, float *dw, int first, int width,
                                                           const pp_random_state *random, int bad_step) {
  for (int j = (int)threadIdx.x; j < width; j += (int)blockDim.x) {
    float sum = first ? 0.0f : dw[j];
    for (int r = 0; r < ROWS; r++) sum += x[r * width + j] * dy[r * width + j];
    if (j == 1 && bad_step && random->step == (uint64_t)bad_step) sum = INFINITY;
    dw[j] = sum;
  }
}

extern "C" __global__ __launch_bounds__(128) void backward_input(const float *w, const float *dy, float *dx, int width) {
  for (int i = (int)threadIdx.x; i < ROWS * width; i += (int)blockDim.x) dx[i] = w[i % width] * dy[i];
}

extern "C" __global__ __launch_bounds__(1) void finish(const float *dw, double *norm, int width) {
  double sum = 0;
  for (int i = 0; i < width; i++) sum += (double)dw[i] * (double)dw[i];
  *norm = sum;
}

extern "C" __global__ __launch_bounds__(1) void decide(const double *losses, const double *counts, const double *norms, double *control) {
  double sum = 0, count = 0, norm = 0;
  for (int i = 0; i < MICROBATCHES; i++) {
    sum += losses[i];
    count += counts[i];
  }
  for (int s = 0; s < STAGES; s++) norm += norms[s];
  norm = pp_sqrt_f64(norm) / count;
  double mean = count != 0 ? sum / count : 0;
  control[PP_CONTROL_LOSS] = mean;
  control[PP_CONTROL_DIVISOR] = count;
  control[PP_CONTROL_NORM] = norm;
  control[PP_CONTROL_RATE] = 0.5;
  control[PP_CONTROL_FACTOR] = 1 / count;
  control[PP_CONTROL_APPLY] = pp_is_finite(norm) && pp_is_finite(mean) && count != 0 ? 1.0 : 0.0;
}

extern "C" __global__ __launch_bounds__(128) void update(const double *control, float *w, float *dw, float *m, int width) {
  if (control[PP_CONTROL_APPLY] == 0) return;
  for (int i = (int)threadIdx.x; i < width; i += (int)blockDim.x) {
    dw[i] *= (float)control[PP_CONTROL_FACTOR];
    m[i] = 0.5f * m[i] + dw[i];
    w[i] -= 0.5f * m[i];
  }
}

// Of the suite of transports (runtime/transport_test.c). Threads take four bytes each, for checkers look at no less than
// two at a time.
extern "C" __global__ __launch_bounds__(128) void fill(unsigned char *at, int n, const pp_random_state *random, int message) {
  for (int piece = (int)threadIdx.x; piece * 4 < n; piece += 128)
    for (int i = piece * 4; i < n && i < piece * 4 + 4; i++)
      at[i] = (unsigned char)(random->step * 31 + (uint64_t)message * 17 + (uint64_t)i * 7 + (uint64_t)(i >> 8));
}

extern "C" __global__ __launch_bounds__(128) void verify(const unsigned char *at, int n, const pp_random_state *random, int message,
                                                         pp_fault *fault) {
  __shared__ int bad[128];
  int lane = (int)threadIdx.x, first = n;
  for (int i = lane; i < n && first == n; i += 128)
    if (at[i] != (unsigned char)(random->step * 31 + (uint64_t)message * 17 + (uint64_t)i * 7 + (uint64_t)(i >> 8))) first = i;
  bad[lane] = first;
  __syncthreads();
  if (lane != 0 || fault->set) return;
  for (int k = 0; k < 128; k++) first = bad[k] < first ? bad[k] : first;
  if (first == n) return;
  fault->place = 0;
  fault->microbatch = message;
  fault->position = first;
  fault->value = at[first];
  fault->rows = n;
  fault->set = 1;
}

extern "C" __global__ __launch_bounds__(1) void set_control(double *control) {
  for (int i = 0; i < PP_CONTROL_SIZE; i++) control[i] = 1;
}
