/* Names for tools, through NVTX: profilers and checkers show streams, events, actions and buffers under the names that
 * they have in the plan. Streams and events get theirs in any case; the rest costs time, and is done only when a
 * tool listens. A buffer is a region of the device's memory, registered where its life begins and gone where it
 * ends, so that a tool can tell stale bytes from written ones; in a captured step, for good. */
#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtCudaRt.h>
#include <nvtx3/nvToolsExtMem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rank.h"

typedef struct {
  nvtxMemHeapHandle_t heap;
  nvtxMemRegionHandle_t *lives; /* [n_lives] of the row that starts a life */
  uint32_t *starts;             /* [n_lives] of a row that ends one: the row that starts it */
} Regions;

void pp_names_stream(cudaStream_t stream, const char *name) { nvtxNameCudaStreamA(stream, name); }
void pp_names_event(cudaEvent_t event, const char *name) { nvtxNameCudaEventA(event, name); }
void pp_names_push(const char *range) { nvtxRangePushA(range); }
void pp_names_pop(void) { nvtxRangePop(); }

/* --- buffers ---------------------------------------------------------------------------------------- */

static nvtxMemRegionHandle_t name_region(const Regions *regions, void *at, size_t size_bytes, const char *name) {
  nvtxMemVirtualRangeDesc_t range = {size_bytes, at};
  nvtxMemRegionHandle_t handle = NULL;
  nvtxMemRegionsRegisterBatch_t batch = {
      .extCompatID = NVTX_EXT_COMPATID_MEM, .structSize = sizeof batch, .regionType = NVTX_MEM_TYPE_VIRTUAL_ADDRESS, .heap = regions->heap,
      .regionCount = 1, .regionDescElementSize = sizeof range, .regionDescElements = &range, .regionHandleElementsOut = &handle};
  nvtxMemRegionsRegister(NULL, &batch);
  nvtxMemRegionNameDesc_t text = {.regionRefType = NVTX_MEM_REGION_REF_TYPE_HANDLE, .nameType = NVTX_MESSAGE_TYPE_ASCII,
                                  .region.handle = handle, .name.ascii = name};
  nvtxMemRegionsNameBatch_t names = {.extCompatID = NVTX_EXT_COMPATID_MEM, .structSize = sizeof names, .regionCount = 1,
                                     .regionElementSize = sizeof text, .regionElements = &text};
  nvtxMemRegionsName(NULL, &names);
  return handle;
}

static void forget_region(nvtxMemRegionHandle_t handle) {
  nvtxMemRegionRef_t reference = {.handle = handle};
  nvtxMemRegionsUnregisterBatch_t batch = {.extCompatID = NVTX_EXT_COMPATID_MEM, .structSize = sizeof batch,
                                           .refType = NVTX_MEM_REGION_REF_TYPE_HANDLE, .refCount = 1,
                                           .refElementSize = sizeof reference, .refElements = &reference};
  nvtxMemRegionsUnregister(NULL, &batch);
}

static void name_life(const pp_rank *rank, const pp_life *life, nvtxMemRegionHandle_t *out_handle) {
  nvtxMemRegionHandle_t handle = name_region(rank->cuda->regions, pp_address_in(rank, life->space, life->offset), life->size_bytes, life->name);
  if (out_handle) *out_handle = handle;
}

/* Called at the points of a step, see pp_life. */
static void pass_point(pp_rank *rank) {
  const pp_program *program = rank->program;
  Regions *regions = rank->cuda->regions;
  for (; rank->check_life < program->n_lives; rank->check_life++) {
    const pp_life *life = &program->lives[rank->check_life];
    if (life->point > rank->check_point) break;
    if (life->starts) name_life(rank, life, &regions->lives[rank->check_life]);
    else forget_region(regions->lives[regions->starts[rank->check_life]]);
  }
  rank->check_point++;
}

static int is_start_of(const pp_life *start, const pp_life *end) {
  return start->starts && start->space == end->space && start->offset == end->offset && start->size_bytes == end->size_bytes &&
         strcmp(start->name, end->name) == 0;
}

/* The latest start before an end. */
static void match_lives(const pp_program *program, Regions *regions) {
  for (uint32_t i = 0; i < program->n_lives; i++) {
    uint32_t k = i;
    if (program->lives[i].starts) continue;
    while (k > 0 && !is_start_of(&program->lives[k], &program->lives[i])) k--;
    regions->starts[i] = k;
  }
}

static pp_status name_buffers(pp_rank *rank) {
  const pp_program *program = rank->program;
  struct pp_cuda *cuda = rank->cuda;
  Regions *regions = calloc(1, sizeof *regions);
  cuda->regions = regions;
  if (!regions) return pp_fail(rank, PP_EXIT_FAILED, "out of memory");
  regions->lives = calloc(program->n_lives + 1u, sizeof *regions->lives);
  regions->starts = calloc(program->n_lives + 1u, sizeof *regions->starts);
  if (!regions->lives || !regions->starts) return pp_fail(rank, PP_EXIT_FAILED, "out of memory");
  nvtxMemVirtualRangeDesc_t whole = {cuda->memory_bytes, cuda->memory};
  nvtxMemHeapDesc_t heap = {.extCompatID = NVTX_EXT_COMPATID_MEM, .structSize = sizeof heap, .usage = NVTX_MEM_HEAP_USAGE_TYPE_SUB_ALLOCATOR,
                            .type = NVTX_MEM_TYPE_VIRTUAL_ADDRESS, .typeSpecificDescSize = sizeof whole, .typeSpecificDesc = &whole};
  regions->heap = nvtxMemHeapRegister(NULL, &heap);
  for (int i = 0; i < program->n_streams; i++) {
    static const char *const parts[2][2] = {{"partial sums", "products' workspace"}, {"partial sums 2", "products' workspace 2"}};
    size_t partial_bytes = program->partial_bytes;
    name_region(regions, cuda->scratch[i], partial_bytes, parts[i][0]);
    if (program->scratch_bytes > partial_bytes)
      name_region(regions, cuda->scratch[i] + partial_bytes, program->scratch_bytes - partial_bytes, parts[i][1]);
  }
  name_region(regions, cuda->state, sizeof *cuda->state, "the step's state");
  name_region(regions, cuda->warm, PP_CUDA_WARM_BYTES, "the first transfers");
  for (uint32_t i = 0; i < program->n_always; i++) name_life(rank, &program->always[i], NULL);
  match_lives(program, regions);
  if (!rank->options->graph) rank->point = pass_point;
  for (uint32_t i = 0; rank->options->graph && i < program->n_lives; i++)
    if (program->lives[i].starts) name_life(rank, &program->lives[i], NULL);
  if (program->n_always + program->n_lives > 0) return PP_OK;
  if (program->arena_bytes) name_region(regions, rank->arena, program->arena_bytes, "arena");
  if (program->window_bytes) name_region(regions, rank->window, program->window_bytes, "window");
  return PP_OK;
}

/* --- the whole --------------------------------------------------------------------------------------- */

/* "stage_1_fwd.3 (gpt2.pp:41)" */
static pp_status name_actions(pp_rank *rank) {
  const pp_program *program = rank->program;
  struct pp_cuda *cuda = rank->cuda;
  cuda->names = calloc(program->n_actions + 1u, sizeof *cuda->names);
  for (uint32_t i = 0; cuda->names && i < program->n_actions; i++) {
    const pp_action *a = &program->actions[i];
    const char *task = program->tasks[a->task].name, *line = program->lines ? program->lines[a->line] : "";
    size_t room = strlen(task) + strlen(line) + 24;
    char *name = cuda->names[i] = malloc(room);
    if (!name) return pp_fail(rank, PP_EXIT_FAILED, "out of memory");
    if (a->microbatch >= 0) snprintf(name, room, "%s.%d%s%s%s", task, a->microbatch, *line ? " (" : "", line, *line ? ")" : "");
    else snprintf(name, room, "%s%s%s%s", task, *line ? " (" : "", line, *line ? ")" : "");
  }
  return cuda->names ? PP_OK : pp_fail(rank, PP_EXIT_FAILED, "out of memory");
}

pp_status pp_names_create(pp_rank *rank) {
  if (!getenv("NVTX_INJECTION64_PATH")) return PP_OK;
  PP_TRY(name_actions(rank));
  return name_buffers(rank);
}

void pp_names_destroy(pp_rank *rank) {
  struct pp_cuda *cuda = rank->cuda;
  Regions *regions = cuda->regions;
  for (uint32_t i = 0; cuda->names && i < rank->program->n_actions; i++) free(cuda->names[i]);
  free(cuda->names);
  if (!regions) return;
  free(regions->lives);
  free(regions->starts);
  free(regions);
}
