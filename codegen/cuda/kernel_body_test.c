/* Device code against an interpreter that runs the ops one by one (codegen/kernel_cases.h): hand-built kernels,
 * every op alone, random ones, and those of the models in testdata/. kernels.cu is compiled by the C++
 * compiler with threads as fibers (test_threads.h) and run; every output must agree to the bit. Where nvcc is
 * installed it compiles one model's kernels too. Usage: kernel_body_test [seed [random kernels]]. */
#include <dlfcn.h>
#include <unistd.h>

#include "codegen/cuda/kernel.h"
#include "runtime/kernels/math.h"

#include "codegen/kernel_cases.h"
#include "compiler/base/diag.h"
#include "compiler/driver/pipeline.h"

/* What test_call(i, a) does: launches the i-th kernel on the arguments a[]. */
static void print_launch(Str *s, const CudaKernel *k, const char *control) {
  if (k->before) print_launch(s, k->before, control);
  str_printf(s, "    test_launch(%lld, %d, [=] { %s(", (long long)k->grid[0], k->block, k->name);
  const char *comma = "";
  if (k->guarded) str_puts(s, control), comma = ", ";
  if (k->random) str_printf(s, "%snullptr, 0", comma), comma = ", ";
  if (k->partial) str_printf(s, "%spartial", comma), comma = ", ";
  for (int i = 0; i < k->n_parameters; i++, comma = ", ") str_printf(s, "%s(%s)a[%d]", comma, k->parameters[i].type, i);
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

/* Kernels of in-place outputs are also tried as those of an update. */
static void run_plan(Arena *arena, const Plan *plan, const char *what, const char *options) {
  CudaKernel *kernels = arena_alloc_array(arena, (size_t)plan->n_kernels, sizeof *kernels);
  for (int i = 0; i < plan->n_kernels; i++) kernels[i] = cuda_fused_kernel(arena, plan, i, plan->kernels[i].n_in_place == 3);
  EmitFiles files = {0};
  emit_kernels_cuda(arena, plan->n_kernels, kernels, &files);
  char dir[] = "/tmp/kernel_body_test_XXXXXX";
  if (!mkdtemp(dir)) perror(dir), exit(2);
  for (int i = 0; i < files.n; i++) write_text(dir, files.at[i].path, files.at[i].text);
  char *text = trampolines(plan->n_kernels, kernels);
  write_text(dir, "test.cpp", text);
  free(text);
  Call *call = compile(dir, options);
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
  for (int i = 0; i < plan->n_kernels; i++) kernels[i] = cuda_fused_kernel(arena, plan, i, false);
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
  else run_plan(a, p.plan, name, "-O1");
  if (p.plan && !strcmp(name, "mlp")) test_nvcc(p.plan, a);
  pipeline_destroy(&p);
  diag_destroy(diag);
  arena_destroy(a);
}

int main(int argc, char **argv) {
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
