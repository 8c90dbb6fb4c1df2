/* Attention and its gradient for f32 and f64, built once for each x86-64 level (see level.h): the
 * text is attention_body.h, included once for each type. */
#include <string.h>

#include "runtime/kernels/level.h"
#include "runtime/kernels/reduce.h"
#include "runtime/pp.h"

#define REAL float
#define T(name) PP_PASTE(name, _f32)
#include "runtime/kernels/attention_body.h"
#undef REAL
#undef T

#define REAL double
#define T(name) PP_PASTE(name, _f64)
#include "runtime/kernels/attention_body.h"
