/* The texts around kernels: numbers, geometries, launches, and what the launches find by themselves. The
 * host's part is compiled by cc without a warning; kernel_body_test.c compiles kernels.cu. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "codegen/cuda/kernel.h"

static int n_failed;

static const char *text_of(const EmitFiles *files, const char *path) {
  for (int i = 0; i < files->n; i++)
    if (!strcmp(files->at[i].path, path)) return files->at[i].text;
  return "";
}

static void expect(const EmitFiles *files, const char *path, const char *what, const char *text) {
  bool found = strstr(text_of(files, path), text) != NULL;
  n_failed += !found;
  printf("%s %s: %s\n", found ? "ok" : "FAIL", path, what);
  if (!found) printf("%s\n", text_of(files, path));
}

static void expect_compiles(const EmitFiles *files) {
  char dir[] = "/tmp/cuda_kernels_XXXXXX", command[1000];
  if (!mkdtemp(dir)) perror(dir), exit(2);
  for (int i = 0; i < files->n; i++) {
    char path[300];
    snprintf(path, sizeof path, "%s/%s", dir, files->at[i].path);
    FILE *f = fopen(path, "w");
    if (!f || fputs(files->at[i].text, f) < 0 || fclose(f)) perror(path), exit(2);
  }
  snprintf(command, sizeof command, "${CC:-cc} -std=c11 -Wall -Wextra -Wpedantic -Werror -I%s -I. -c %s/kernels_launch.c -o %s/x.o", dir, dir, dir);
  bool failed = system(command) != 0;
  n_failed += failed;
  printf("%s kernels_launch.c compiles without a warning\n", failed ? "FAIL" : "ok");
  snprintf(command, sizeof command, "rm -rf %s", dir);
  if (system(command)) n_failed++;
}

int main(void) {
  Arena *arena = arena_create();
  CudaParameter scale[] = {{"const float *", "x", true}, {"float *", "out", true}}, many[] = {{"const double *", "in", false}, {"int64_t", "n", false}};
  CudaParameter own[] = {{"const float *", "gradient", false}, {"const double *", "control", true}, {"float *", "unread", true}};
  CudaKernel first = {.name = "sum_9_partial", .n_parameters = 2, .parameters = many, .partial = true, .grid = {3, 1, 1}, .block = 16, .body = "  a();\n"};
  CudaKernel kernels[] = {
      {.name = "scale_512", .comment = "x: float[512] */", .n_parameters = 2, .parameters = scale, .grid = {2, 1, 1}, .block = 256, .body = "  b(x, out);\n"},
      {.name = "adamw", .include = "step.cuh", .n_parameters = 2, .parameters = scale, .guarded = true, .random = true, .grid = {1, 7, 2}, .block = 32, .shared_bytes = 64, .body = "  b(x);\n"},
      {.name = "sum_9", .n_parameters = 2, .parameters = many, .partial = true, .grid = {1, 1, 1}, .block = 16, .body = "  a(in);\n", .before = &first},
      {.name = "sgd", .n_parameters = 3, .parameters = own, .guarded = true, .grid = {1, 1, 1}, .block = 16, .body = "  a(gradient);\n"},
  };
  EmitFiles files = {0};
  emit_kernels_cuda(arena, 4, kernels, &files);
  expect(&files, "kernels.cu", "a signature is on one line up to its bracket", "extern \"C\" __global__ __launch_bounds__(256, 1) void scale_512(\n    const float *__restrict__ x, float *__restrict__ out) {\n  b(x, out);\n}\n");
  expect(&files, "kernels.cu", "what the launch finds comes first", "void adamw(\n    const double *__restrict__ control, const pp_random_state *__restrict__ random, int microbatch,\n");
  expect(&files, "kernels.cu", "guarded kernels look at the control vector", "  if (control[PP_CONTROL_APPLY] == 0) return;\n");
  expect(&files, "kernels.cu", "includes", "#include \"runtime/kernels/cuda/step.cuh\"\n");
  expect(&files, "kernels.cu", "partial sums", "void sum_9_partial(\n    double *__restrict__ partial) {\n  a();\n}\n");
  expect(&files, "kernels.cu", "a kernel takes what it names", "void sum_9(\n    double *__restrict__ partial, const double *in) {\n  a(in);\n}\n");
  expect(&files, "kernels.cu", "the control vector comes once", "void sgd(\n    const float *gradient, const double *__restrict__ control) {\n  if (control[PP_CONTROL_APPLY] == 0) return;\n");
  expect(&files, "kernels.h", "numbers", "  kernel_scale_512,\n  kernel_adamw,\n  kernel_sum_9_partial,\n  kernel_sum_9,\n  kernel_sgd,\n  n_kernels\n");
  expect(&files, "kernels.h", "prototypes", "void launch_scale_512(const pp_call *c, const float *x, float *out);\n");
  expect(&files, "kernels_launch.c", "geometries, with those launched before", "  {\"adamw\", {1, 7, 2}, 32, 64},\n  {\"sum_9_partial\", {3, 1, 1}, 16, 0},\n");
  expect(&files, "kernels_launch.c", "a launch hands over what the kernel takes", "(void *[]){&control, &random, &microbatch, &x});\n");
  expect(&files, "kernels_launch.c", "what is taken by none is marked", "const double *control, float *unread) {\n  (void)unread;\n  pp_launch(c, kernel_sgd,\n            (void *[]){&gradient, &control});\n");
  expect(&files, "kernels_launch.c", "a kernel is launched after the one before it", "  double *partial = pp_device_scratch(c);\n  (void)n;\n  pp_launch(c, kernel_sum_9_partial,\n            (void *[]){&partial});\n  pp_launch(c, kernel_sum_9,\n");
  expect_compiles(&files);
  EmitFiles none = {0};
  emit_kernels_cuda(arena, 0, NULL, &none);
  expect_compiles(&none);
  arena_destroy(arena);
  return n_failed != 0;
}
