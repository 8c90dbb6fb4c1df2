/* Emitted kernels against an interpreter that runs their ops one by one: hand-built ones (layer norm,
 * softmax, column sums, concat, pad, optimizer in place, …), every op alone, and random ones. The
 * text is compiled by cc with the flags of emitted programs at two x86-64 levels, without a warning,
 * and loaded; every output must agree to the bit. Usage: kernels_test [seed [random kernels]]. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/kernels/math.h"

#include "codegen/kernel_cases.h"

/* The i-th kernel of the loaded object takes arguments from a[]. */
static char *trampolines(const Plan *plan) {
  Str s = {0};
  str_puts(&s, "#include \"kernels.h\"\n#include \"runtime/kernels/level.h\"\nextern const struct kernels PP_LEVELED(kernels);\n"
               "void test_call(int number, void **a);\n"
               "void pp_random_uniform(const pp_call *call, uint64_t key, float *dst, int64_t n) {\n"
               "  (void)call;\n  for (int64_t i = 0; i < n; i++) dst[i] = (float)(((uint64_t)i * 2654435761u + key) % 1000) / 1024;\n}\n"
               "void test_call(int number, void **a) {\n  (void)a;\n  switch (number) {\n");
  for (int i = 0; i < plan->n_kernels; i++) {
    const PlanKernel *k = &plan->kernels[i];
    str_printf(&s, "  case %d: PP_LEVELED(kernels).%s(", i, k->name);
    if (k->uses_call) str_puts(&s, "0, ");
    for (int j = 0; j < k->n_inputs + k->n_outputs; j++) str_printf(&s, "%sa[%d]", j ? ", " : "", j);
    str_puts(&s, "); break;\n");
  }
  str_puts(&s, "  }\n}\n");
  return s.text;
}

static Call *compile(const char *dir, int level, const char *options) {
  char command[2000], path[300];
  snprintf(path, sizeof path, "%s/k%d%d.so", dir, level, n_failed);
  const char *march = level ? (level == 2 ? "-march=x86-64-v2" : level == 3 ? "-march=x86-64-v3" : "-march=x86-64-v4") : "";
  snprintf(command, sizeof command,
           "cd %s && ${CC:-cc} -std=c11 -Wall -Wextra -Werror %s -fno-math-errno -fno-trapping-math -ffp-contract=off -fopenmp-simd %s -DPP_LEVEL=%d "
           "-fPIC -shared -I. -I\"$OLDPWD\" kernels.c trampolines.c -o %s",
           dir, options, march, level, path);
  if (system(command)) return NULL;
  void *so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!so) return fprintf(stderr, "%s\n", dlerror()), NULL;
  Call *call;
  *(void **)&call = dlsym(so, "test_call");
  return call;
}

static void run_all(Arena *arena, Build **builds, int n, const char *what, const char *options) {
  PlanKernel *kernels = arena_alloc_array(arena, (size_t)n, sizeof *kernels);
  for (int i = 0; i < n; i++) kernels[i] = builds[i]->kernel;
  Plan plan = {.n_kernels = n, .kernels = kernels};
  EmitFiles files = {0};
  emit_kernels_c(arena, &plan, &files);
  char dir[] = "/tmp/kernels_test_XXXXXX";
  if (!mkdtemp(dir)) perror(dir), exit(2);
  for (int i = 0; i < files.n; i++) write_text(dir, files.at[i].path, files.at[i].text);
  char *text = trampolines(&plan);
  write_text(dir, "trampolines.c", text);
  free(text);
#ifdef __x86_64__
  static const int levels[] = {2, 3};
  int n_levels = __builtin_cpu_supports("avx2") ? 2 : 1;
#else
  static const int levels[] = {0};
  int n_levels = 1;
#endif
  bool failed = false;
  for (int l = 0; l < n_levels; l++) {
    Call *call = compile(dir, levels[l], options);
    if (!call) {
      printf("FAIL %s: level %d doesn't compile, see %s\n", what, levels[l], dir);
      n_failed++, failed = true;
      continue;
    }
    for (int i = 0; i < n; i++) {
      bool ok = run_kernel(&kernels[i], i, call, what);
      if (!ok) n_failed++, failed = true;
    }
  }
  if (failed) printf("     the text is in %s\n", dir);
  char command[100];
  snprintf(command, sizeof command, "rm -rf %s", dir);
  if (!failed && !getenv("KEEP") && system(command)) exit(2);
  if (getenv("KEEP")) printf("%s: %s\n", what, dir);
  if (!failed) printf("ok %s: %d kernels at %d levels\n", what, n, n_levels);
}

int main(int argc, char **argv) {
  if (argc > 1) state = strtoull(argv[1], NULL, 0);
  Arena *a = arena_create();
  test_hand_built(a);
  test_ops(a);
  arena_destroy(a);
  test_random(argc > 2 ? atoi(argv[2]) : 100);
  return n_failed != 0;
}
