/* The tasks of runtime/chain.c for GPUs: included there in place of its own when it is compiled for CUDA. */
#include "kernels_table.h"

#define LAUNCH(c, kernel, ...) pp_launch(c, kernel, (void *[]){__VA_ARGS__})

static void forward(const pp_call *c, int stage) {
  int width = (int)chain.width, n = (int)elements(), microbatch = c->microbatch;
  const pp_random_state *random = pp_device_random(c);
  void *x = c->at[0], *w = c->at[1], *y = c->at[2];
  if (stage == 0) pp_device_data(c, 0, x);
  if (stage == 0 && chain.data_kind != PP_DATA_SYNTHETIC_F32) {
    pp_fault *fault = pp_device_fault(c);
    LAUNCH(c, K_NUMBERS, &x, &n, &fault, &microbatch, &random, &chain.bad_index_step);
  }
  if (chain.sleep_us) usleep((useconds_t)chain.sleep_us);
  if (stage == 2 && chain.crash_step && (int)c->rank->step == chain.crash_step) raise(SIGSEGV);
  if (stage == 2 && chain.exit_step && (int)c->rank->step == chain.exit_step) exit(0);
  LAUNCH(c, K_FORWARD, &x, &w, &y, &width);
  if (stage != STAGES - 1) return;
  double *losses = pp_device_losses(c), *counts = pp_device_counts(c), *output = pp_device_output(c, 0);
  void *dy = c->at[3];
  LAUNCH(c, K_LOSS, &y, &dy, &losses, &counts, &output, &random, &microbatch, &width, &chain.bad_loss_step, &chain.no_count_step);
}

static void backward(const pp_call *c, int stage) {
  int width = (int)chain.width, first = c->first, bad_step = stage == 2 ? chain.bad_step : 0;
  const pp_random_state *random = pp_device_random(c);
  void *x = c->at[0], *w = c->at[1], *dy = c->at[2], *dw = c->at[3];
  LAUNCH(c, K_BACKWARD, &x, &dy, &dw, &first, &width, &random, &bad_step);
  if (stage == 0) return;
  void *dx = c->at[4];
  LAUNCH(c, K_INPUT, &w, &dy, &dx, &width);
}

static void finish(const pp_call *c) {
  int width = (int)chain.width;
  void *dw = c->at[0], *norm = c->at[1];
  LAUNCH(c, K_FINISH, &dw, &norm, &width);
}

static void decide(const pp_call *c) {
  void *losses = c->at[0], *counts = c->at[1], *norms = c->at[2], *control = c->at[3];
  LAUNCH(c, K_DECIDE, &losses, &counts, &norms, &control);
}

static void update(const pp_call *c) {
  int width = (int)chain.width;
  void *control = c->at[0], *w = c->at[1], *dw = c->at[2], *m = c->at[3];
  LAUNCH(c, K_UPDATE, &control, &w, &dw, &m, &width);
}

/* What a program for GPUs has beside the tables that all have. */
static void set_cuda(pp_program *p) {
  p->device = &pp_device_cuda;
  p->fatbin = chain.skip ? "kernels_skip.fatbin" : "kernels.fatbin";
  p->kernels = test_kernels;
  p->n_kernels = K_COUNT;
  p->places = test_places;
  p->n_places = 1;
  p->n_streams = 1;
  p->scratch_bytes = p->partial_bytes = PP_CUDA_PARTIALS * sizeof(double);
  p->staging_bytes = MICROBATCHES * (((uint64_t)elements() * 4 + PP_ALIGNMENT - 1) / PP_ALIGNMENT * PP_ALIGNMENT);
}
