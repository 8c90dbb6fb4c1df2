// What is decided in a step is decided on the device, by one thread (pp_single_geometry): the numbers of the step and
// of the update, whether the update is made, and what the host hears of it afterwards. In a step's order:
//   pp_step_begin   first of all
//   pp_step_gate    on the rank that decides, between `decide` and the sends of its control vector; on others when the
//                   vector has come, before the first update: after a stop, or a fault of this rank, nothing is applied
//   pp_step_end     last of all
// judge() of runtime/rank.c is the CPU's.
#ifndef PP_CUDA_STEP_CUH
#define PP_CUDA_STEP_CUH

#include "runtime/abi.h"
#include "runtime/cuda/geometry.h"
#include "runtime/cuda/state.h"
#include "runtime/kernels/cuda/math.cuh"

// `step`: the number of the update that is being made, which tasks read.
PP_DEVICE void pp_step_begin(pp_step_state *state, double *step) {
  state->random.step++;
  if (!state->fault.set) state->fault_step = state->random.step;
  *step = (double)(state->updates + 1);
}

PP_DEVICE void pp_step_gate(const pp_step_state *state, double *control) {
  if (state->stopped || state->fault.set) control[PP_CONTROL_APPLY] = 0.0;
}

PP_DEVICE bool pp_is_finite(double x) { return pp_abs_f64(x) < (double)INFINITY; }

// The first loss, else the first squared norm of a gradient, that isn't finite. Null where they aren't known.
template <int N_MICROBATCHES, int N_PARAMETERS>
PP_DEVICE void pp_step_find_bad(const double *losses, const double *norms, pp_skip *skip) {
  skip->microbatch = skip->parameter = -1;
  for (int i = 0; losses && i < N_MICROBATCHES; i++) {
    if (pp_is_finite(losses[i])) continue;
    skip->microbatch = i;
    skip->value = losses[i];
    return;
  }
  for (int i = 0; norms && i < N_PARAMETERS; i++) {
    if (pp_is_finite(norms[i])) continue;
    skip->parameter = i;
    skip->value = norms[i];
    return;
  }
}

// losses and norms: null but on the rank of the loss. SKIPS: `nonfinite skip`, else `nonfinite stop`.
template <int N_MICROBATCHES, int N_PARAMETERS, bool SKIPS>
PP_DEVICE void pp_step_end(pp_step_state *state, const double *control, const double *losses, const double *norms) {
  if (state->stopped || state->fault.set) return;
  if (control[PP_CONTROL_APPLY] != 0.0) {
    state->updates++;
    return;
  }
  pp_skip skip = {state->random.step, control[PP_CONTROL_DIVISOR] == 0.0, -1, -1, 0.0};
  if (!skip.uncounted) pp_step_find_bad<N_MICROBATCHES, N_PARAMETERS>(losses, norms, &skip);
  state->n_skipped++;
  state->skip = skip;
  state->stopped = !skip.uncounted && !SKIPS;
}

// --- what tasks report, by one thread ----------------------------------------------------------------------------------

// Loss pair of a microbatch; count null: a plain loss.
template <typename T, typename U>
PP_DEVICE void pp_store_loss(const T *loss, const U *count, double *losses, double *counts, int microbatch) {
  losses[microbatch] = pp_convert<double>(*loss);
  counts[microbatch] = count ? pp_convert<double>(*count) : 1.0;
}

// Partial result of an output: N values of this microbatch; pp_flat_geometry(N).
template <typename T, int64_t N> PP_DEVICE void pp_store_output(const T *values, double *slot, int microbatch) {
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < N; i += (int64_t)gridDim.x * blockDim.x)
    slot[microbatch * N + i] = pp_convert<double>(values[i]);
}

#endif
