/* How values of a kernel are made on the device: shared by kernel_form.c (loads, random numbers, reductions)
 * and kernel_body.c (which threads make which elements). */
#ifndef PPC_CUDA_KERNEL_FORM_H
#define PPC_CUDA_KERNEL_FORM_H

#include "codegen/cuda/kernel.h"
#include "codegen/kernel_emit.h"

enum {
  CHUNK = PP_CUDA_CHUNK,
  PACK = 4       /* neighbouring elements of a thread that are loaded and stored at once */
};

/* Emit.own. */
typedef struct {
  bool team;          /* the 16 lanes of a reduction are threads, of number `lane` */
  int width;          /* > 0: lanes lie this far apart in a block, and meet in shared memory; 0: they are half a warp */
  int pack_atom;      /* loop over the elements of a pack; -1: none */
  int pack_depth;     /* of its scope */
  int n_single;       /* loads for one element of a pack only */
  int deepest;        /* depth of the innermost scope to which a team's reduction belongs; -1: none */
  bool uses_random;
  int *stage;         /* per value: sums of whole tensors in chunks on the longest path to it */
  bool *chunked;      /* per value: it is such a sum */
  int64_t *partial;   /* per value: where its partial sums begin */
} Device;

static inline Device *device_of(const Emit *e) { return e->own; }

extern const KernelForm device_form, device_form_wide; /* wide: elements are counted in 64 bits */

const char *device_pack_type(const Emit *e, int v); /* "pp_f32x4" */
int64_t device_chunks(const Emit *e, int v);
/* A loop over 0 … extent - 1 in which lane l takes turns l, l + 16, …: `turn` writes one turn for `at`. */
typedef void DeviceTurn(Emit *e, Index at, const void *context);
void device_lane_loop(Emit *e, int loop, char kind, int id, int64_t extent, DeviceTurn *turn, const void *context);
/* "float x_lane = 0;" before the loop, "const float x = pp_half_sum(x_lane);" behind it. */
void device_start_reduction(Emit *e, const Reduction *r);
void device_fold_reduction(Emit *e, const Reduction *r);

/* --- kernel_body.c --------------------------------------------------------------------------------- */

/* Those of the CPU's kernel, apart from words of C++ and of what launches find by themselves; input number
 * `control` (-1: none) is called so. */
const char *const *device_parameter_names(Arena *arena, const PlanKernel *k, int control);
/* An open scope without text. */
void device_start_pass(Emit *e);
/* Outputs at element `linear`; `condition`: "if (lane == 0) " before the stores, or null. */
void device_store_outputs(Emit *e, int n, const int *outputs, Index linear, const char *condition);
/* Outputs at PACK elements from PACK * point on. */
void device_store_packs(Emit *e, int n, const int *outputs, Index point);

#endif
