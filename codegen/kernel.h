/* One kernel of the plan → one C function. */
#ifndef PPC_KERNEL_H
#define PPC_KERNEL_H

#include "codegen/index.h"
#include "compiler/plan.h"

/* C spelling of an element type: "float", "uint8_t". */
const char *kernel_type(pp_dtype dtype);
/* Of an input or the result of a node. */
const PlanType *kernel_value_type(const PlanKernel *k, int value);
/* "mul, add (nn.pp:35); x: float[4, 8]; bias: float[8] → y: float[4, 8]": for the comment above it. */
const char *kernel_comment(Arena *arena, const PlanKernel *k, const char *const *names);
/* Names of the parameters: n_inputs, then n_outputs; unique, C identifiers, no keywords. */
const char *const *kernel_parameter_names(Arena *arena, const PlanKernel *k);
/* "const float *restrict x, float *restrict out" (with "const pp_call *call" when it takes one). */
void kernel_print_parameters(Str *out, const PlanKernel *k, const char *const *names);
/* Appends the function's body, braces included. */
void kernel_print_body(Arena *arena, Str *out, const PlanKernel *k, const char *const *names);

#endif
