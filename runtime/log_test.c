/* Numbers in the log, options, and the choice of a token. */
#include <math.h>
#include <stdint.h>

#include "internal.h"
#include "test.h"

static const char *format(double value, int is_f32) {
  static char text[PP_REAL_BYTES];
  pp_format_real(value, is_f32, text);
  return text;
}

static void numbers_are_short_and_read_back(void) {
  CHECK(strcmp(format(0.1, 0), "0.1") == 0);
  CHECK(strcmp(format((double)0.1f, 1), "0.1") == 0);
  CHECK(strcmp(format(5.5451, 0), "5.5451") == 0);
  CHECK(strcmp(format(0, 0), "0") == 0);
  CHECK(strcmp(format(1e-3, 0), "0.001") == 0);
  CHECK(strcmp(format((double)NAN, 0), "null") == 0 && strcmp(format((double)INFINITY, 1), "null") == 0);
  for (uint64_t i = 0; i < 100000; i++) {
    uint32_t words[4], counter[4] = {(uint32_t)i, 0, 0, 0}, key[2] = {1, 2};
    float f;
    double d;
    pp_philox(counter, key, words);
    memcpy(&f, &words[0], 4);
    memcpy(&d, &words[2], 8);
    if (isfinite(f)) CHECK(strtof(format((double)f, 1), NULL) == f);
    if (isfinite(d)) CHECK(strtod(format(d, 0), NULL) == d);
  }
}

/* No shorter text reads back: every number of at most six digits is printed as it was written. */
static void numbers_of_few_digits_stay(void) {
  for (int i = 1; i < 100000; i += 7) {
    char text[32];
    snprintf(text, sizeof text, "%.5g", i / 1000.0);
    CHECK(strcmp(format((double)strtof(text, NULL), 1), text) == 0);
    CHECK(strcmp(format(strtod(text, NULL), 0), text) == 0);
  }
}

static void tokens_are_drawn(void) {
  double logits[6] = {1, 3, 2, 3, -1, 0}, scratch[6];
  CHECK(pp_sample(logits, 6, 0, 0, 0.9, scratch) == 1);
  CHECK(pp_sample(logits, 6, 1, 1, 0.9, scratch) == 1);
  int seen[6] = {0};
  for (int i = 0; i < 1000; i++) seen[pp_sample(logits, 6, 1, 2, i / 1000.0, scratch)]++;
  CHECK(seen[1] == 500 && seen[3] == 500);
  memset(seen, 0, sizeof seen);
  for (int i = 0; i < 1000; i++) seen[pp_sample(logits, 6, 1, 1000, i / 1000.0, scratch)]++;
  CHECK(seen[1] > 300 && seen[0] > 20 && seen[4] > 2);
  logits[5] = -INFINITY;
  for (int i = 0; i < 1000; i++) CHECK(pp_sample(logits, 6, 1, 0, i / 1000.0, scratch) != 5);
}

static int parse_on(const char *device_name, pp_options *options, const char *const *arguments, int generate) {
  const pp_device device = {.name = device_name};
  static const pp_data data = {.name = "text", .path = "x"};
  pp_program program = {.steps = 7, .seed = 8, .data = &data, .n_data = 1, .generate = generate, .n_ranks = 1, .device = &device};
  char *argv[16] = {(char *)(size_t)"rank_0"};
  int argc = 1;
  for (; arguments[argc - 1]; argc++) argv[argc] = (char *)(size_t)arguments[argc - 1];
  int saved = dup(STDERR_FILENO), nothing = open("/dev/null", O_WRONLY);
  dup2(nothing, STDERR_FILENO);
  int status = pp_options_parse(options, &program, argc, argv);
  dup2(saved, STDERR_FILENO);
  close(saved);
  close(nothing);
  return status;
}

static int parse(pp_options *options, const char *const *arguments, int generate) { return parse_on("cpu", options, arguments, generate); }

static void options_are_read(void) {
  pp_options o;
  CHECK(parse(&o, ARGUMENTS("--steps=0"), 0) == -1 && o.steps == 0 && o.seed == 8 && o.timeout_s == 5);
  pp_options_destroy(&o);
  CHECK(parse(&o, ARGUMENTS("--steps", "12", "--json", "--data=text=a=b", "--timeout=0.5"), 0) == -1);
  CHECK(o.steps == 12 && o.json && strcmp(o.data[0], "a=b") == 0 && o.timeout_s == 0.5);
  pp_options_destroy(&o);
  CHECK(parse(&o, ARGUMENTS("--generate=5", "--prompt=x", "--top-k=3"), 1) == -1 && o.generate == 5);
  pp_options_destroy(&o);
}

static void bad_options_are_refused(void) {
  static const char *const bad[] = {"--step=1", "--steps", "--steps=", "--steps=-1", "--steps=1x", "--steps=9223372036854775808",
                                    "--seed=18446744073709551616", "--json=1", "--timeout=nan", "--timeout=-1", "--data=text",
                                    "--data=other=x", "--data==x", "--data=text=", "--threads=0", "--init=", "x", "-h", "--generate=5"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    pp_options o;
    if (parse(&o, ARGUMENTS(bad[i]), 0) != PP_EXIT_USAGE) printf("FAIL accepted %s\n", bad[i]), test_failures++;
    pp_options_destroy(&o);
  }
}

static void options_of_other_devices_are_refused(void) {
  static const struct { const char *argument, *device; } options[] = {{"--threads=2", "cpu"}, {"--graph", "cuda"}};
  for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
    const char *other = strcmp(options[i].device, "cpu") == 0 ? "cuda" : "cpu";
    pp_options o;
    CHECK(parse_on(options[i].device, &o, ARGUMENTS(options[i].argument), 0) == -1);
    pp_options_destroy(&o);
    CHECK(parse_on(other, &o, ARGUMENTS(options[i].argument), 0) == PP_EXIT_USAGE);
    pp_options_destroy(&o);
  }
}

int main(void) {
  TEST(numbers_are_short_and_read_back);
  TEST(numbers_of_few_digits_stay);
  TEST(tokens_are_drawn);
  TEST(options_are_read);
  TEST(bad_options_are_refused);
  TEST(options_of_other_devices_are_refused);
  return test_failures != 0;
}
