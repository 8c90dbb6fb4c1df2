/* What the machines of estimates do: a modest core of a CPU, and GPUs by their data sheets (NVIDIA's, of the SXM
 * boards, without sparsity), of which kernels and transfers are taken to reach a part. Nobody has measured that part
 * here, and it depends on sizes: what an estimate is good for is the comparison of schedules. */
#include "compiler/simulate.h"

#include <string.h>

#define TERA 1e12
#define GIGA 1e9

/* Of the peaks below. */
static const double of_flops = 0.6, of_bandwidth = 0.8, of_link = 0.8;
/* Seconds from one launch to the next at least, and from a transfer's post to its first byte. */
static const double gpu_launch = 4e-6, gpu_latency = 10e-6;

static const Machine cpu_core = {.name = "core", .flops = {20 * GIGA, 20 * GIGA, 20 * GIGA, 20 * GIGA}, .bandwidth = 10 * GIGA, .link = 5 * GIGA};

/* Products of f32, TF32, bf16, f64; memory; NVLink in one direction. */
static const Machine gpus[] = {
    {.name = "a100", .flops = {19.5 * TERA, 156 * TERA, 312 * TERA, 19.5 * TERA}, .bandwidth = 2.04 * TERA, .link = 300 * GIGA},
    {.name = "h100", .flops = {67 * TERA, 495 * TERA, 989 * TERA, 67 * TERA}, .bandwidth = 3.35 * TERA, .link = 450 * GIGA},
    {.name = "h200", .flops = {67 * TERA, 495 * TERA, 989 * TERA, 67 * TERA}, .bandwidth = 4.8 * TERA, .link = 450 * GIGA},
    {.name = "b200", .flops = {75 * TERA, 1100 * TERA, 2250 * TERA, 37 * TERA}, .bandwidth = 7.7 * TERA, .link = 900 * GIGA},
};

bool machine_find_gpu(const char *name, Machine *out) {
  for (size_t i = 0; i < sizeof gpus / sizeof *gpus; i++) {
    if (strcmp(gpus[i].name, name) != 0) continue;
    *out = gpus[i];
    for (int k = 0; k < MACHINE_RATES; k++) out->flops[k] *= of_flops;
    out->bandwidth *= of_bandwidth;
    out->link *= of_link;
    out->launch = gpu_launch;
    out->latency = gpu_latency;
    return true;
  }
  return false;
}

Machine machine_core(void) { return cpu_core; }

double machine_flops(const Machine *machine, const Plan *plan, pp_dtype operands) {
  if (operands == PP_BF16) return machine->flops[MACHINE_BF16];
  if (operands == PP_F64) return machine->flops[MACHINE_F64];
  return machine->flops[plan->tf32 ? MACHINE_TF32 : MACHINE_F32];
}
