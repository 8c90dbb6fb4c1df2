/* The table of kernels.cu, as emitted programs have one. */
#ifndef KERNELS_TABLE_H
#define KERNELS_TABLE_H

#include "cuda/cuda.h"

enum { K_BEGIN, K_GATE, K_END, K_NUMBERS, K_FORWARD, K_LOSS, K_BACKWARD, K_INPUT, K_FINISH, K_DECIDE, K_UPDATE, K_FILL, K_VERIFY, K_CONTROL, K_COUNT };

#define ROW(name, block) {name, {1, 1, 1}, block, 0}
static const pp_kernel test_kernels[K_COUNT] = {
    ROW("step_begin", 1), ROW("step_gate", 1), ROW("step_end", 1), ROW("numbers", 128), ROW("forward", 128), ROW("loss", 1),
    ROW("backward", 128), ROW("backward_input", 128), ROW("finish", 1), ROW("decide", 1), ROW("update", 128), ROW("fill", 128),
    ROW("verify", 128), ROW("set_control", 1)};

static const pp_place test_places[] = {{"wte", "input", 0}};

#endif
