// Device code on the host, for tests of what it computes: blocks run one after the other, the threads of a block as
// fibers that give way at barriers and shuffles only; a thread that never waits leaves its fiber to the next one.
// No checks of memory or order: those are runtime/check's. Include it before kernels.cu.
#pragma once

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#define __global__
#define __device__
#define __shared__ static
#define __launch_bounds__(...)

struct test_dim { unsigned x, y, z; };
static test_dim threadIdx, blockIdx, blockDim, gridDim;

enum { TEST_THREADS = 1024, TEST_STACK = 64 << 10 };
enum test_state { TEST_READY, TEST_AT_BARRIER, TEST_DONE };
struct test_fiber {
  ucontext_t context;
  test_state state;
  unsigned thread;
};

static test_fiber test_fibers[TEST_THREADS], *test_self;
static ucontext_t test_scheduler;
static char *test_stacks;
static unsigned test_started, test_ended;        // threads of the block
static unsigned test_shuffles[TEST_THREADS];     // of each thread so far
static uint64_t test_slots[2][TEST_THREADS];
static void (*test_body)(void *);
static void *test_context;

static void test_yield() {
  test_fiber *mine = test_self;
  swapcontext(&mine->context, &test_scheduler);
  threadIdx.x = mine->thread;
}

static inline void __syncthreads() {
  test_self->state = TEST_AT_BARRIER;
  test_yield();
}

template <typename T> static T __shfl_xor_sync(unsigned mask, T value, int distance) {
  unsigned me = test_self->thread, first = me / 32 * 32, turn = test_shuffles[me]++;
  memcpy(&test_slots[turn % 2][me], &value, sizeof value);
  for (unsigned l = 0; l < 32; l++)
    while ((mask >> l & 1) && test_shuffles[first + l] <= turn) test_yield();
  memcpy(&value, &test_slots[turn % 2][me ^ (unsigned)distance], sizeof value);
  return value;
}

static void test_fiber_main() {
  while (test_started < blockDim.x) {
    threadIdx.x = test_self->thread = test_started++;
    test_body(test_context);
    test_ended++;
  }
  test_self->state = TEST_DONE;
  swapcontext(&test_self->context, &test_scheduler);
}

static void test_start_fiber(int i) {
  test_fiber *f = &test_fibers[i];
  getcontext(&f->context);
  f->context.uc_stack.ss_sp = test_stacks + (size_t)i * TEST_STACK;
  f->context.uc_stack.ss_size = TEST_STACK;
  f->state = TEST_READY;
  makecontext(&f->context, test_fiber_main, 0);
}

static void test_run_block() {
  int n = 0;
  test_started = test_ended = 0;
  memset(test_shuffles, 0, sizeof test_shuffles);
  while (test_ended < blockDim.x) {
    unsigned waiting = 0;
    bool ran = false;
    if (test_started < blockDim.x) test_start_fiber(n++);
    for (int i = 0; i < n; i++) {
      if (test_fibers[i].state == TEST_READY) {
        test_self = &test_fibers[i];
        threadIdx.x = test_self->thread;
        swapcontext(&test_scheduler, &test_self->context);
        ran = true;
      }
      waiting += test_fibers[i].state == TEST_AT_BARRIER;
    }
    if (waiting && waiting + test_ended == blockDim.x) {
      for (int i = 0; i < n; i++)
        if (test_fibers[i].state == TEST_AT_BARRIER) test_fibers[i].state = TEST_READY;
    } else if (!ran && test_started == blockDim.x && test_ended < blockDim.x) {
      fprintf(stderr, "threads of a block wait for each other\n");
      abort();
    }
  }
}

template <typename F> static void test_launch(unsigned blocks, unsigned threads, F body) {
  if (!test_stacks) test_stacks = (char *)malloc((size_t)TEST_THREADS * TEST_STACK);
  test_body = [](void *f) { (*(F *)f)(); };
  test_context = &body;
  blockDim = {threads, 1, 1}, gridDim = {blocks, 1, 1};
  for (unsigned b = 0; b < blocks; b++) {
    blockIdx = {b, 0, 0};
    test_run_block();
  }
  test_context = nullptr;
}
