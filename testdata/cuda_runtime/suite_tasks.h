/* The tasks of runtime/transport_test.c for GPUs: included there in place of its own when it is compiled for CUDA. */
#include "kernels_table.h"

/* Transfers complete in the order in which a rank posts them: so they are posted in the order of the messages. */
enum { POSTS_IN_ORDER = 1 };

static void fill(const pp_call *c) {
  int n = (int)size_of(c, 1), message = c->microbatch;
  void *at = c->at[0];
  const pp_random_state *random = pp_device_random(c);
  pp_launch(c, K_FILL, (void *[]){&at, &n, &random, &message});
}

static void verify(const pp_call *c) {
  int n = (int)size_of(c, 0), message = c->microbatch;
  void *at = c->at[0];
  const pp_random_state *random = pp_device_random(c);
  pp_fault *fault = pp_device_fault(c);
  pp_launch(c, K_VERIFY, (void *[]){&at, &n, &random, &message, &fault});
}

static void control(const pp_call *c) {
  void *at = c->at[0];
  pp_launch(c, K_CONTROL, (void *[]){&at});
}

static void set_cuda(pp_program *p) {
  p->device = &pp_device_cuda;
  p->fatbin = "kernels.fatbin";
  p->kernels = test_kernels;
  p->n_kernels = K_COUNT;
  p->places = test_places;
  p->n_places = 1;
  p->n_streams = 1;
  p->scratch_bytes = p->partial_bytes = PP_CUDA_PARTIALS * sizeof(double);
}
