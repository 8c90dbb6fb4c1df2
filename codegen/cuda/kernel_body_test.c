/* Device code against an interpreter that runs the ops one by one (codegen/kernel_cases.h): hand-built kernels,
 * every op alone, random ones, and those of the models in testdata/. kernels.cu is compiled by the C++
 * compiler with threads as fibers (test_threads.h) and run; every output must agree to the bit. Where nvcc is
 * installed it compiles one model's kernels too. Usage: kernel_body_test [seed [random kernels]]. */
#include <dlfcn.h>
#include <unistd.h>

#include "codegen/cuda/many.h"
#include "runtime/kernels/math.h"

#include "codegen/kernel_cases.h"
#include "compiler/base/diag.h"
#include "compiler/driver/pipeline.h"

/* What test_call(i, a) does: launches the i-th kernel on the arguments a[]. */
static void print_launch(Str *s, const CudaKernel *k, const char *control) {
  if (k->before) print_launch(s, k->before, control);
  str_printf(s, "    test_launch(%lld, %d, [=] { %s(", (long long)k->grid[0], k->block, k->name);
  const char *comma = "";
  if (cuda_kernel_finds_control(k)) str_puts(s, control), comma = ", ";
  if (k->random) str_printf(s, "%snullptr, 0", comma), comma = ", ";
  if (k->partial) str_printf(s, "%spartial", comma), comma = ", ";
  for (int i = 0; i < k->n_parameters; i++) {
    bool is_control = k->guarded && !strcmp(k->parameters[i].name, "control"), is_skip = !strcmp(control, "skip");
    if (!cuda_kernel_takes(k, i)) continue;
    if (is_control && is_skip) str_printf(s, "%sskip", comma);
    else str_printf(s, "%s(%s)a[%d]", comma, k->parameters[i].type, i);
    comma = ", ";
  }
  str_puts(s, "); });\n");
}

static char *trampolines(int n, const CudaKernel *kernels) {
  Str s = {0};
  str_puts(&s, "#include \"codegen/cuda/test_threads.h\"\n#include \"runtime/cuda/state.h\"\n"
               "#define PP_CUDA_RANDOM_CUH // the interpreter's numbers\n"
               "struct pp_words { uint64_t key; };\n"
               "static inline pp_words pp_random_stream(const pp_random_state *, int, uint64_t key) { return pp_words{key}; }\n"
               "static inline float pp_random_element(pp_words w, int64_t i) { return (float)(((uint64_t)i * 2654435761u + w.key) % 1000) / 1024; }\n"
               "#include \"kernels.cu\"\n"
               "static double partial[PP_CUDA_PARTIALS];\nstatic const double apply[PP_CONTROL_SIZE] = {1}, skip[PP_CONTROL_SIZE] = {0};\n"
               "extern \"C\" void test_call(int number, void **a) {\n  (void)a, (void)partial, (void)apply, (void)skip;\n  switch (number) {\n");
  for (int i = 0; i < n; i++) {
    str_printf(&s, "  case %d:\n", i);
    print_launch(&s, &kernels[i], "apply");
    if (kernels[i].guarded) print_launch(&s, &kernels[i], "skip"); /* changes nothing */
    str_puts(&s, "    break;\n");
  }
  str_puts(&s, "  }\n}\n");
  return s.text;
}

static Call *compile(const char *dir, const char *options) {
  char command[2000], path[300];
  snprintf(path, sizeof path, "%s/k.so", dir);
  snprintf(command, sizeof command,
           "${CXX:-c++} -std=c++17 -Wall -Wextra -Werror -Wno-unknown-pragmas -Wno-unused-parameter -Wno-tautological-compare -Wno-unused-function "
           "%s -fno-math-errno -fno-trapping-math -ffp-contract=off -fPIC -shared -I%s -I. %s/test.cpp -o %s",
           options, dir, dir, path);
  if (system(command)) return NULL;
  void *so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!so) return fprintf(stderr, "%s\n", dlerror()), NULL;
  Call *call;
  *(void **)&call = dlsym(so, "test_call");
  return call;
}

static void remove_folder(const char *dir) {
  char command[100];
  snprintf(command, sizeof command, "rm -rf %s", dir);
  if (system(command)) exit(2);
}

static Call *compile_kernels(Arena *arena, int n, const CudaKernel *kernels, const char *dir, const char *options) {
  EmitFiles files = {0};
  emit_kernels_cuda(arena, n, kernels, &files);
  for (int i = 0; i < files.n; i++) write_text(dir, files.at[i].path, files.at[i].text);
  char *text = trampolines(n, kernels);
  write_text(dir, "test.cpp", text);
  free(text);
  return compile(dir, options);
}

/* Kernels of in-place outputs are also tried as those of an update. */
static void run_plan(Arena *arena, const Plan *plan, const char *what, const char *options) {
  CudaKernel *kernels = arena_alloc_array(arena, (size_t)plan->n_kernels, sizeof *kernels);
  for (int i = 0; i < plan->n_kernels; i++) kernels[i] = cuda_fused_kernel(arena, plan, i, plan->kernels[i].n_in_place == 3, -1);
  char dir[] = "/tmp/kernel_body_test_XXXXXX";
  if (!mkdtemp(dir)) perror(dir), exit(2);
  Call *call = compile_kernels(arena, plan->n_kernels, kernels, dir, options);
  bool failed = !call;
  if (!call) printf("FAIL %s: doesn't compile\n", what);
  for (int i = 0; call && i < plan->n_kernels; i++) failed |= !run_kernel(&plan->kernels[i], i, call, what);
  n_failed += failed;
  if (failed || getenv("KEEP")) printf("     the text is in %s\n", dir);
  else remove_folder(dir);
  if (!failed) printf("ok %s: %d kernels\n", what, plan->n_kernels);
}

static void run_all(Arena *arena, Build **builds, int n, const char *what, const char *options) {
  PlanKernel *kernels = arena_alloc_array(arena, (size_t)n, sizeof *kernels);
  for (int i = 0; i < n; i++) kernels[i] = builds[i]->kernel;
  Plan plan = {.n_kernels = n, .kernels = kernels};
  run_plan(arena, &plan, what, strcmp(options, "-O3") ? options : "-O1");
}

/* --- many tensors in one launch ------------------------------------------------------------------------------- */

/* One array for each place of a task's buffers. */
static void **allocate_buffers(const PlanTask *task) {
  void **at = calloc((size_t)task->n_buffers, sizeof *at);
  for (int b = 0; b < task->n_buffers; b++) {
    const PlanBuffer *x = &task->buffers[b];
    for (int i = 0; i < b && !at[b]; i++) {
      const PlanBuffer *y = &task->buffers[i];
      if (x->place == y->place && x->index == y->index && x->sub == y->sub) at[b] = at[i];
    }
    if (at[b]) continue;
    int64_t count = elements(&x->type);
    at[b] = aligned_alloc(64, ((size_t)(count * element_bytes(x->type.dtype)) + 64 + 63) / 64 * 64);
    for (int64_t i = 0; i < count; i++) put(at[b], x->type.dtype, i, random_value(x->type.dtype));
    if (x->place == PLAN_CONTROL) put(at[b], x->type.dtype, PP_CONTROL_APPLY, 1);
  }
  return at;
}

static bool same_outputs(const Plan *plan, const PlanTask *task, const CudaGroup *g, void **at, double ***values) {
  for (int m = 0; m < g->n; m++) {
    const PlanStatement *s = &task->statements[g->statements[m]];
    const PlanKernel *k = &plan->kernels[s->kernel];
    for (int o = 0; o < k->n_outputs; o++) {
      const PlanType *t = type_of(k, k->outputs[o]);
      for (int64_t i = 0; i < elements(t); i++) {
        double got = get(at[s->out[o]], t->dtype, i), want = values[m][k->outputs[o]][i];
        if (same_bits(got, want)) continue;
        printf("FAIL %s: %s, output %d element %lld is %a, not %a\n", task->name, k->name, o, (long long)i, got, want);
        return false;
      }
    }
  }
  return true;
}

/* A group's launch against its members one by one. */
static bool run_group(const Plan *plan, const PlanTask *task, const CudaGroup *g, int number, Call *call) {
  void **at = allocate_buffers(task), **a = calloc((size_t)g->n_arguments, sizeof *a);
  double ***values = calloc((size_t)g->n, sizeof *values);
  for (int m = 0; m < g->n; m++) {
    const PlanStatement *s = &task->statements[g->statements[m]];
    const PlanKernel *k = &plan->kernels[s->kernel];
    values[m] = calloc((size_t)(k->n_inputs + k->n_nodes), sizeof **values);
    for (int i = 0; i < k->n_inputs; i++) {
      int64_t count = elements(&k->inputs[i]);
      values[m][i] = malloc(sizeof(double) * (size_t)count);
      for (int64_t j = 0; j < count; j++) values[m][i][j] = get(at[s->in[i]], k->inputs[i].dtype, j);
    }
    interpret(k, values[m]);
  }
  for (int i = 0; i < g->n_arguments; i++) a[i] = at[g->arguments[i]];
  call(number, a);
  bool ok = same_outputs(plan, task, g, at, values);
  for (int m = 0; m < g->n; m++) {
    const PlanKernel *k = &plan->kernels[task->statements[g->statements[m]].kernel];
    for (int i = 0; i < k->n_inputs + k->n_nodes; i++) free(values[m][i]);
    free(values[m]);
  }
  for (int b = 0; b < task->n_buffers; b++) {
    bool shared = false;
    for (int i = 0; i < b; i++) shared |= at[i] == at[b];
    if (!shared) free(at[b]);
  }
  free(at), free(a), free(values);
  return ok;
}

typedef struct {
  const PlanTask *task;
  const CudaGroup *group;
} Case;

static void run_groups(Arena *arena, const Plan *plan, const char *what) {
  VEC(Case) cases = {0};
  VEC(CudaKernel) kernels = {0};
  int covered = 0;
  for (int t = 0; t < plan->n_tasks; t++) {
    const PlanTask *task = &plan->tasks[t];
    CudaGroups groups = cuda_groups_find(arena, plan, task);
    for (int i = 0; i < groups.n; i++) {
      Case c = {task, &groups.groups[i]};
      VEC_PUSH(arena, &cases, c);
      VEC_PUSH(arena, &kernels, cuda_group_kernel(arena, plan, task, c.group, arena_printf(arena, "group_%d", cases.n)));
      covered += c.group->n;
    }
  }
  char dir[] = "/tmp/kernel_body_test_XXXXXX";
  if (!mkdtemp(dir)) perror(dir), exit(2);
  Call *call = compile_kernels(arena, kernels.n, kernels.at, dir, "-O1");
  bool failed = !call || covered < 2 * cases.n || cases.n == 0;
  for (int i = 0; call && i < cases.n; i++) failed |= !run_group(plan, cases.at[i].task, cases.at[i].group, i, call);
  n_failed += failed;
  printf("%s %s: %d launches in place of %d\n", failed ? "FAIL" : "ok", what, cases.n, covered);
  if (failed || getenv("KEEP")) printf("     the text is in %s\n", dir);
  else remove_folder(dir);
}

/* --- what only devices do differently --------------------------------------------------------------------- */

/* Sums of whole tensors in chunks, alone and where others need them. */
static Build *long_sums(Arena *a, int64_t n, const char *name, bool used) {
  Build *b = start(a, name);
  int x = input(b, F32, DIMS(n)), s = reduce(b, PLAN_OP_REDUCE_SUM, map2(b, PLAN_OP_MUL, x, x), 1, (int64_t[]){0});
  int m = reduce(b, PLAN_OP_REDUCE_MAX, x, 1, (int64_t[]){0});
  output(b, s);
  if (!used) return b;
  output(b, map2(b, PLAN_OP_DIV, x, broadcast(b, map1(b, PLAN_OP_SQRT, s), DIMS(n))));
  int t = reduce(b, PLAN_OP_REDUCE_SUM, map2(b, PLAN_OP_SUB, x, broadcast(b, m, DIMS(n))), 1, (int64_t[]){0});
  output(b, map2(b, PLAN_OP_ADD, t, s));
  return b;
}

/* Four neighbours at once: rows, columns, permuted, padded and joined ones, all types. */
static Build *packs(Arena *a) {
  Build *b = start(a, "packs");
  int64_t rows = 512, cols = 128;
  int x = input(b, F32, DIMS(rows, cols)), y = input(b, F64, DIMS(rows, cols)), i = input(b, I32, DIMS(rows, cols)), c = input(b, BOOL, DIMS(rows, cols));
  int row = input(b, F32, DIMS(rows, 1)), column = input(b, F32, DIMS(1, cols));
  int z = map2(b, PLAN_OP_ADD, x, broadcast(b, row, DIMS(rows, cols)));
  output(b, map2(b, PLAN_OP_MUL, z, broadcast(b, column, DIMS(rows, cols))));
  output(b, select3(b, c, y, cast(b, i, F64)));
  output(b, map1(b, PLAN_OP_NOT, c));
  return b;
}

static Build *packed_moves(Arena *a) {
  Build *b = start(a, "packed_moves");
  int x = input(b, F32, DIMS(4, 64, 8, 32)), y = input(b, F32, DIMS(256, 256));
  int p = reshape(b, permute(b, x, (int64_t[]){0, 2, 1, 3}), DIMS(256, 256));
  int left = slice(b, p, (int64_t[]){0, 64}, (int64_t[]){256, 192}), right = slice(b, y, (int64_t[]){0, 1}, (int64_t[]){256, 129});
  output(b, concat(b, 2, (int[]){left, right}, 1));
  output(b, map2(b, PLAN_OP_ADD, y, pad(b, left, (int64_t[]){0, 128}, (int64_t[]){0, 0})));
  return b;
}

static Build *wide_rows(Arena *a) {
  Build *b = start(a, "wide_rows");
  int x = input(b, F32, DIMS(3, 5000)), s = reduce(b, PLAN_OP_REDUCE_SUM, x, 1, (int64_t[]){1});
  output(b, map2(b, PLAN_OP_SUB, x, broadcast(b, reshape(b, s, DIMS(3, 1)), DIMS(3, 5000))));
  output(b, s);
  return b;
}

static void test_device(Arena *a) {
  Build *all[] = {long_sums(a, 65536, "sum_65536", false), long_sums(a, 65537, "sum_65537", false), long_sums(a, 300000, "sum_300000", true),
                  long_sums(a, 131072, "sum_131072", true), long_sums(a, 5000, "sum_5000", true), packs(a), packed_moves(a), wide_rows(a),
                  column_sums(a, 70, 40000, "column_sums_wide")};
  run_all(a, all, sizeof all / sizeof *all, "large", "-O1");
}

/* The real compiler, one architecture: no warning, no spill, no local memory. */
static void test_nvcc(const Plan *plan, Arena *arena) {
  if (system("command -v nvcc >/dev/null 2>&1")) {
    printf("skipped: no nvcc\n");
    return;
  }
  CudaKernel *kernels = arena_alloc_array(arena, (size_t)plan->n_kernels, sizeof *kernels);
  for (int i = 0; i < plan->n_kernels; i++) kernels[i] = cuda_fused_kernel(arena, plan, i, false, -1);
  EmitFiles files = {0};
  emit_kernels_cuda(arena, plan->n_kernels, kernels, &files);
  char dir[] = "/tmp/kernel_body_test_XXXXXX", command[1000];
  if (!mkdtemp(dir)) perror(dir), exit(2);
  for (int i = 0; i < files.n; i++) write_text(dir, files.at[i].path, files.at[i].text);
  snprintf(command, sizeof command,
           "nvcc -arch=sm_90 -std=c++17 -O3 -fmad=false -Xptxas -warn-spills,-warn-lmem-usage -Werror all-warnings -I%s -I. -cubin -o %s/kernels.cubin %s/kernels.cu",
           dir, dir, dir);
  bool failed = system(command) != 0;
  n_failed += failed;
  printf("%s nvcc: %d kernels\n", failed ? "FAIL" : "ok", plan->n_kernels);
  if (!failed) remove_folder(dir);
}

/* --- models --------------------------------------------------------------------------------------------------- */

static const CompileOptions model_options = {.ranks = -1, .microbatch = -1, .microbatches = -1, .steps = -1, .threads = 1};

static void test_model(const char *name) {
  Arena *a = arena_create();
  Diag *diag = diag_create();
  Pipeline p = {.arena = a, .diag = diag};
  CompileOptions options = model_options;
  options.microbatch = 1;
  if (!pipeline_run(&p, arena_printf(a, "testdata/models/%s.pp", name), &options, NULL)) printf("FAIL %s: no plan\n", name), n_failed++;
  else run_plan(a, p.plan, name, "-O1"), run_groups(a, p.plan, name);
  if (p.plan && !strcmp(name, "mlp")) test_nvcc(p.plan, a);
  pipeline_destroy(&p);
  diag_destroy(diag);
  arena_destroy(a);
}

int main(int argc, char **argv) {
  if (system("command -v c++ >/dev/null 2>&1")) {
    printf("skipped: no C++ compiler\nok without a C++ compiler nothing is run\n");
    return 0;
  }
  if (argc > 1) state = strtoull(argv[1], NULL, 0);
  sum_chunk = 65536;
  Arena *a = arena_create();
  test_hand_built(a);
  test_ops(a);
  test_device(a);
  arena_destroy(a);
  test_random(argc > 2 ? atoi(argv[2]) : 100);
  static const char *const models[] = {"mlp", "gpt2", "llama", "encdec", "skip"};
  for (int i = 0; i < 5; i++) test_model(models[i]);
  return n_failed != 0;
}
