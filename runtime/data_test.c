#include <stdint.h>

#include "internal.h"
#include "test.h"

/* A rank by hand, with one source, as far as data.c looks at it. */
typedef struct {
  pp_program program;
  pp_options options;
  pp_data data;
  const char *given;
  uint64_t windows;
  pp_rank *rank;
} Fixture;

static char path[64] = "/tmp/pp-data-XXXXXX";
static char captured[4096];

static void write_file(const void *bytes, size_t n) {
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (fd < 0 || write(fd, bytes, n) != (ssize_t)n) abort();
  close(fd);
}

static Fixture *fixture(int kind, int order, int64_t n, int64_t vocabulary) {
  Fixture *f = calloc(1, sizeof *f);
  f->rank = calloc(1, sizeof *f->rank);
  f->data = (pp_data){.name = "text", .kind = kind, .order = order, .path = "x", .n = n, .vocabulary = vocabulary, .used = 1};
  f->program = (pp_program){.n_ranks = 1, .data = &f->data, .n_data = 1, .microbatch = 3, .n_microbatches = 2};
  f->given = path;
  f->options.data = &f->given;
  f->options.seed = 11;
  f->rank->program = &f->program;
  f->rank->options = &f->options;
  f->rank->failure = &f->rank->early_failure;
  return f;
}

static void destroy(Fixture *f) {
  pp_data_close(f->rank);
  free(f->rank);
  free(f);
}

/* Opens it and takes what goes to stderr. */
static pp_status open_it(Fixture *f) {
  int pipes[2], saved = dup(STDERR_FILENO);
  if (pipe(pipes) != 0) abort();
  dup2(pipes[1], STDERR_FILENO);
  close(pipes[1]);
  pp_status status = pp_data_open(f->rank);
  dup2(saved, STDERR_FILENO);
  close(saved);
  ssize_t n = read(pipes[0], captured, sizeof captured - 1);
  captured[n > 0 ? n : 0] = 0;
  close(pipes[0]);
  return status;
}

static void refused(int kind, int64_t n, int64_t vocabulary, const char *part) {
  Fixture *f = fixture(kind, PP_ORDER_RANDOM, n, vocabulary);
  CHECK(open_it(f) == PP_STOPPED);
  CHECK_TEXT(captured, path);
  CHECK_TEXT(captured, part);
  CHECK(pp_exit_status(f->rank) == PP_EXIT_INPUT);
  destroy(f);
}

static void accepted(int kind, int64_t n, int64_t vocabulary) {
  Fixture *f = fixture(kind, PP_ORDER_RANDOM, n, vocabulary);
  CHECK(open_it(f) == PP_OK);
  destroy(f);
}

static void short_files_are_refused(void) {
  char bytes[256] = {0};
  static const size_t sizes[] = {0, 1, 128};
  for (size_t i = 0; i < 3; i++) {
    write_file(bytes, sizes[i]);
    refused(PP_DATA_BYTES, 129, 256, "at least 129 bytes");
  }
  CHECK_TEXT(captured, "has 128");
  write_file(bytes, 129);
  accepted(PP_DATA_BYTES, 129, 256);
  write_file(bytes, 100);
  refused(PP_DATA_TOKENS16, 51, 256, "at least 51 tokens");
  accepted(PP_DATA_TOKENS16, 50, 256);
  write_file(bytes, 41);
  refused(PP_DATA_TOKENS16, 4, 256, "whole number of 16-bit tokens");
  write_file(bytes, 44);
  refused(PP_DATA_F32_FILE, 4, 0, "whole number of rows");
  accepted(PP_DATA_F32_FILE, 11, 0);
}

static void one_window_is_enough(void) {
  char bytes[129];
  int32_t rows[3 * 129];
  memset(bytes, 'a', sizeof bytes);
  write_file(bytes, sizeof bytes);
  Fixture *f = fixture(PP_DATA_BYTES, PP_ORDER_RANDOM, 129, 256);
  pp_call call = {.microbatch = 1, .rank = f->rank};
  CHECK(open_it(f) == PP_OK);
  pp_data_read(&call, 0, rows);
  for (int i = 0; i < 3 * 129; i++) CHECK(rows[i] == 'a');
  destroy(f);
}

static void tokens_outside_the_vocabulary_are_refused(void) {
  uint16_t tokens[1000] = {0};
  int32_t words[100] = {0};
  tokens[700] = 50256;
  write_file(tokens, sizeof tokens);
  refused(PP_DATA_TOKENS16, 8, 256, "token 700 is 50256, outside the vocabulary of 256");
  accepted(PP_DATA_TOKENS16, 8, 50257);
  accepted(PP_DATA_TOKENS16, 8, 119547);
  accepted(PP_DATA_TOKENS16, 8, 0);
  words[33] = -1;
  write_file(words, sizeof words);
  refused(PP_DATA_I32_FILE, 10, 256, "token 33 is -1");
  words[33] = 70000;
  write_file(words, sizeof words);
  refused(PP_DATA_I32_FILE, 10, 65536, "token 33 is 70000");
  write_file("abc\xff", 4);
  refused(PP_DATA_BYTES, 2, 128, "token 3 is 255");
}

/* The last token of a file that is no multiple of a read. */
static void the_whole_file_is_scanned(void) {
  static uint16_t tokens[100001];
  tokens[100000] = 300;
  write_file(tokens, sizeof tokens);
  refused(PP_DATA_TOKENS16, 8, 256, "token 100000 is 300");
}

static void llm_c_headers_are_read(void) {
  static int32_t header[256];
  static unsigned char file[1024 + 20];
  header[0] = 20240520;
  header[1] = 1;
  header[2] = 10;
  memcpy(file, header, 1024);
  for (int i = 0; i < 10; i++) file[1024 + 2 * i] = (unsigned char)(i + 1);
  write_file(file, sizeof file);
  Fixture *f = fixture(PP_DATA_TOKENS16, PP_ORDER_SEQUENTIAL, 5, 256);
  int32_t rows[15];
  pp_call call = {.microbatch = 0, .rank = f->rank};
  CHECK(open_it(f) == PP_OK);
  pp_data_read(&call, 0, rows);
  for (int i = 0; i < 15; i++) CHECK(rows[i] == i % 10 + 1);
  destroy(f);
  write_file(file, sizeof file - 2);
  refused(PP_DATA_TOKENS16, 5, 256, "10 tokens, the file has room for 9");
  header[1] = 2;
  memcpy(file, header, 1024);
  write_file(file, sizeof file);
  refused(PP_DATA_TOKENS16, 5, 256, "version 2");
}

/* Rows depend on the sample number alone: two batch shapes read the same ones. */
static void samples_do_not_depend_on_the_batch(void) {
  unsigned char bytes[5000];
  int32_t a[12 * 16], b[12 * 16];
  for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (unsigned char)(i * 7919 >> 5);
  write_file(bytes, sizeof bytes);
  for (int order = 0; order < PP_ORDER_COUNT; order++) {
    Fixture *f = fixture(PP_DATA_BYTES, order, 16, 256);
    CHECK(open_it(f) == PP_OK);
    f->rank->samples = 24;
    for (int mb = 0; mb < 4; mb++) pp_data_read(&(pp_call){.microbatch = mb, .rank = f->rank}, 0, a + mb * 3 * 16);
    f->program.microbatch = 2;
    f->rank->samples = 24;
    for (int mb = 0; mb < 6; mb++) pp_data_read(&(pp_call){.microbatch = mb, .rank = f->rank}, 0, b + mb * 2 * 16);
    CHECK(memcmp(a, b, sizeof a) == 0);
    destroy(f);
  }
}

static void shuffled_epochs_cover_all_rows_and_stay_paired(void) {
  pp_data data = {.kind = PP_DATA_F32_FILE, .order = PP_ORDER_SHUFFLED, .n = 4}, other = data;
  pp_source source = {.n_elements = 4 * 37, .n_windows = 37}, wide = {.n_elements = 9 * 37, .n_windows = 37};
  other.n = 9;
  int differ = 0;
  for (uint64_t epoch = 0; epoch < 3; epoch++) {
    int seen[37] = {0};
    for (uint64_t i = 0; i < 37; i++) {
      uint64_t row = pp_data_place(&source, &data, 5, epoch * 37 + i) / 4;
      CHECK(row < 37 && !seen[row]++);
      CHECK(pp_data_place(&wide, &other, 5, epoch * 37 + i) / 9 == row);
      differ += row != pp_data_place(&source, &data, 5, i) / 4;
    }
  }
  CHECK(differ > 40);
}

static void sequential_windows_follow_one_another(void) {
  pp_data data = {.kind = PP_DATA_BYTES, .order = PP_ORDER_SEQUENTIAL, .n = 10};
  pp_source source = {.n_elements = 35, .n_windows = 3};
  for (uint64_t k = 0; k < 9; k++) CHECK(pp_data_place(&source, &data, 5, k) == k % 3 * 10);
}

static void random_windows_reach_both_ends(void) {
  pp_data data = {.kind = PP_DATA_BYTES, .order = PP_ORDER_RANDOM, .n = 10};
  pp_source source = {.n_elements = 15, .n_windows = 1};
  int seen[6] = {0};
  for (uint64_t k = 0; k < 300; k++) seen[pp_data_place(&source, &data, 5, k)]++;
  for (int i = 0; i < 6; i++) CHECK(seen[i] > 20);
}

static void synthetic_data_are_functions_of_name_and_number(void) {
  Fixture *f = fixture(PP_DATA_SYNTHETIC_F32, PP_ORDER_RANDOM, 300, 0);
  static float a[900], b[900];
  static int32_t words[900];
  f->data.path = NULL;
  CHECK(open_it(f) == PP_OK);
  pp_data_read(&(pp_call){.microbatch = 1, .rank = f->rank}, 0, a);
  f->rank->samples = 3;
  pp_data_read(&(pp_call){.microbatch = 0, .rank = f->rank}, 0, b);
  CHECK(memcmp(a, b, sizeof a) == 0);
  CHECK(memcmp(a, a + 300, 1200) != 0);
  destroy(f);
  f = fixture(PP_DATA_SYNTHETIC_I32, PP_ORDER_RANDOM, 300, 50);
  CHECK(open_it(f) == PP_OK);
  pp_data_read(&(pp_call){.microbatch = 1, .rank = f->rank}, 0, words);
  for (int i = 0; i < 900; i++) CHECK(words[i] >= 0 && words[i] < 50);
  destroy(f);
}

int main(void) {
  int fd = mkstemp(path);
  if (fd < 0) return 1;
  close(fd);
  TEST(short_files_are_refused);
  TEST(one_window_is_enough);
  TEST(tokens_outside_the_vocabulary_are_refused);
  TEST(the_whole_file_is_scanned);
  TEST(llm_c_headers_are_read);
  TEST(samples_do_not_depend_on_the_batch);
  TEST(shuffled_epochs_cover_all_rows_and_stay_paired);
  TEST(sequential_windows_follow_one_another);
  TEST(random_windows_reach_both_ends);
  TEST(synthetic_data_are_functions_of_name_and_number);
  unlink(path);
  return test_failures != 0;
}
