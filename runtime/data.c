/* Data sources. Sample number k is a function of (seed, k), never of step, microbatch or rank, so
 * every rank that uses a source reads the same rows, and another batch shape neither repeats nor
 * skips one. Files are read with pread straight into the task's buffer: no copy is kept, and a file
 * that shrinks meanwhile is an error, not a signal. All files are checked whole before step 1. */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Streams of random numbers; a data source's own is the hash of its name with a prefix. */
enum { PLACE_STREAM = 0x706c6163, EPOCH_STREAM = 0x65706f63 };
/* llm.c's token files: 256 words of header, of which three are used. */
enum { LLMC_MAGIC = 20240520, LLMC_VERSION = 1, LLMC_HEADER_BYTES = 1024 };
enum { SCAN_BYTES = 1 << 16 };

static size_t element_bytes(int kind) { return kind == PP_DATA_BYTES ? 1 : kind == PP_DATA_TOKENS16 ? 2 : 4; }

static int is_file(const pp_data *data) { return data->kind != PP_DATA_SYNTHETIC_F32 && data->kind != PP_DATA_SYNTHETIC_I32; }
static int has_rows(const pp_data *data) { return data->kind == PP_DATA_F32_FILE || data->kind == PP_DATA_I32_FILE; }

/* --- where a sample lies --------------------------------------------------------------------------- */

uint64_t pp_data_place(const pp_source *source, const pp_data *data, uint64_t seed, uint64_t k) {
  uint64_t n = (uint64_t)data->n, windows = source->n_windows;
  if (data->order == PP_ORDER_SEQUENTIAL) return k % windows * n;
  if (data->order == PP_ORDER_SHUFFLED) {
    uint64_t key = pp_random_below(seed, EPOCH_STREAM, k / windows, UINT64_MAX);
    return pp_permute(key, windows, k % windows) * n;
  }
  if (has_rows(data)) return pp_random_below(seed, PLACE_STREAM, k, windows) * n;
  return pp_random_below(seed, PLACE_STREAM, k, source->n_elements - n + 1);
}

/* --- reading -------------------------------------------------------------------------------------- */

static int read_at(int fd, void *out, size_t n, uint64_t at) {
  unsigned char *bytes = out;
  while (n > 0) {
    ssize_t got = pread(fd, bytes, n, (off_t)at);
    if (got < 0 && errno == EINTR) continue;
    if (got == 0) errno = 0;
    if (got <= 0) return 0;
    bytes += got;
    n -= (size_t)got;
    at += (uint64_t)got;
  }
  return 1;
}

/* The narrow elements lie at the end of the row; widening from the front never overtakes them. */
static void widen_row(int kind, int32_t *row, int64_t n) {
  const unsigned char *from = (const unsigned char *)row + (size_t)n * (4 - element_bytes(kind));
  for (int64_t i = 0; i < n; i++) {
    int32_t value = kind == PP_DATA_BYTES ? from[i] : from[2 * i] | from[2 * i + 1] << 8;
    memcpy(&row[i], &value, 4);
  }
}

static void read_row(const pp_call *call, const pp_data *data, const pp_source *source, uint64_t k, void *dst) {
  size_t wide = (size_t)data->n * 4, narrow = (size_t)data->n * element_bytes(data->kind);
  uint64_t place = pp_data_place(source, data, call->rank->options->seed, k);
  uint64_t at = source->start_bytes + place * element_bytes(data->kind);
  if (!read_at(source->fd, (unsigned char *)dst + (wide - narrow), narrow, at)) {
    pp_fail(call->rank, PP_EXIT_FAILED, "%s: can't read %zu bytes at %llu: %s", source->path, narrow, (unsigned long long)at,
            errno ? strerror(errno) : "the file has become shorter");
    pp_leave(call->rank);
  }
  if (narrow < wide) widen_row(data->kind, dst, data->n);
}

static void make_normal_row(const pp_source *source, uint64_t seed, uint64_t k, float *dst, int64_t n) {
  double values[256];
  for (int64_t done = 0; done < n; done += 256) {
    int64_t part = n - done < 256 ? n - done : 256;
    pp_random_fill_normal(seed, source->name_hash, k * (uint64_t)n + (uint64_t)done, values, part);
    for (int64_t i = 0; i < part; i++) dst[done + i] = (float)values[i];
  }
}

static void make_index_row(const pp_source *source, const pp_data *data, uint64_t seed, uint64_t k, int32_t *dst) {
  uint64_t first = k * (uint64_t)data->n, vocabulary = data->vocabulary > 0 ? (uint64_t)data->vocabulary : 1;
  for (int64_t i = 0; i < data->n; i++) dst[i] = (int32_t)pp_random_below(seed, source->name_hash, first + (uint64_t)i, vocabulary);
}

void pp_data_read(const pp_call *call, int number, void *dst) {
  const pp_rank *rank = call->rank;
  const pp_data *data = &rank->program->data[number];
  const pp_source *source = &rank->sources[number];
  int64_t rows = rank->program->microbatch;
  uint64_t first = rank->samples + (uint64_t)(call->microbatch * rows);
  for (int64_t r = 0; r < rows; r++) {
    uint64_t k = first + (uint64_t)r;
    void *row = (unsigned char *)dst + r * data->n * 4;
    if (data->kind == PP_DATA_SYNTHETIC_F32) make_normal_row(source, rank->options->seed, k, row, data->n);
    else if (data->kind == PP_DATA_SYNTHETIC_I32) make_index_row(source, data, rank->options->seed, k, row);
    else read_row(call, data, source, k, row);
  }
}

/* --- checks before step 1 --------------------------------------------------------------------------- */

static int32_t word_at(const unsigned char *bytes, size_t index) {
  int32_t word;
  memcpy(&word, bytes + 4 * index, 4);
  return word;
}

/* A file of llm.c says in its header how many tokens follow; nanoGPT's has none. */
static pp_status find_tokens(pp_rank *rank, pp_source *source, uint64_t size_bytes) {
  unsigned char header[12];
  source->start_bytes = 0;
  source->n_elements = size_bytes / 2;
  if (size_bytes >= LLMC_HEADER_BYTES && read_at(source->fd, header, sizeof header, 0) && word_at(header, 0) == LLMC_MAGIC) {
    uint64_t count = (uint32_t)word_at(header, 2);
    if (word_at(header, 1) != LLMC_VERSION) {
      return pp_fail(rank, PP_EXIT_INPUT, "%s: token file of version %d; version %d is known", source->path, word_at(header, 1),
                     LLMC_VERSION);
    }
    if (size_bytes != LLMC_HEADER_BYTES + 2 * count) {
      return pp_fail(rank, PP_EXIT_INPUT, "%s: the header says %llu tokens, the file has room for %llu", source->path,
                     (unsigned long long)count, (unsigned long long)((size_bytes - LLMC_HEADER_BYTES) / 2));
    }
    source->start_bytes = LLMC_HEADER_BYTES;
    source->n_elements = count;
    return PP_OK;
  }
  if (size_bytes % 2) {
    return pp_fail(rank, PP_EXIT_INPUT, "%s: %llu bytes are no whole number of 16-bit tokens", source->path,
                   (unsigned long long)size_bytes);
  }
  return PP_OK;
}

static pp_status measure(pp_rank *rank, const pp_data *data, pp_source *source, uint64_t size_bytes) {
  uint64_t n = (uint64_t)data->n;
  const char *unit = data->kind == PP_DATA_BYTES ? "bytes" : data->kind == PP_DATA_TOKENS16 ? "tokens" : "numbers";
  source->n_elements = size_bytes / element_bytes(data->kind);
  if (data->kind == PP_DATA_TOKENS16) PP_TRY(find_tokens(rank, source, size_bytes));
  if (has_rows(data) && size_bytes % (4 * n)) {
    return pp_fail(rank, PP_EXIT_INPUT, "%s: %llu bytes are no whole number of rows of %llu numbers (%llu bytes each)",
                   source->path, (unsigned long long)size_bytes, (unsigned long long)n, (unsigned long long)(4 * n));
  }
  if (source->n_elements < n) {
    return pp_fail(rank, PP_EXIT_INPUT, "%s: %s needs at least %llu %s for one sample, the file has %llu", source->path,
                   data->name, (unsigned long long)n, unit, (unsigned long long)source->n_elements);
  }
  source->n_windows = source->n_elements / n;
  return PP_OK;
}

/* Index of the first value outside [0, vocabulary), or n. */
static size_t first_bad(int kind, const unsigned char *bytes, size_t n, int64_t vocabulary, int64_t *out_value) {
  for (size_t i = 0; i < n; i++) {
    *out_value = kind == PP_DATA_BYTES ? bytes[i] : kind == PP_DATA_TOKENS16 ? bytes[2 * i] | bytes[2 * i + 1] << 8 : word_at(bytes, i);
    if (*out_value < 0 || *out_value >= vocabulary) return i;
  }
  return n;
}

/* A quick look without branches; first_bad only tells where. */
static int any_bad(int kind, const unsigned char *bytes, size_t n, int64_t vocabulary) {
  uint32_t largest = 0;
  for (size_t i = 0; kind == PP_DATA_BYTES && i < n; i++) largest = bytes[i] > largest ? bytes[i] : largest;
  for (size_t i = 0; kind == PP_DATA_TOKENS16 && i < n; i++) {
    uint16_t token;
    memcpy(&token, bytes + 2 * i, 2);
    largest = token > largest ? token : largest;
  }
  for (size_t i = 0; kind == PP_DATA_I32_FILE && i < n; i++) {
    uint32_t value; /* a negative one is a large one */
    memcpy(&value, bytes + 4 * i, 4);
    largest = value > largest ? value : largest;
  }
  return largest >= vocabulary;
}

/* An element can't exceed what its type holds. */
static int needs_scan(const pp_data *data) {
  if (data->vocabulary <= 0 || data->kind == PP_DATA_F32_FILE) return 0;
  if (data->kind == PP_DATA_BYTES) return data->vocabulary < 256;
  return data->kind != PP_DATA_TOKENS16 || data->vocabulary < 65536;
}

static pp_status scan(pp_rank *rank, const pp_data *data, pp_source *source) {
  unsigned char bytes[SCAN_BYTES];
  size_t width = element_bytes(data->kind), per_read = SCAN_BYTES / width;
  for (uint64_t at = 0; at < source->n_elements; at += per_read) {
    size_t n = source->n_elements - at < per_read ? (size_t)(source->n_elements - at) : per_read;
    int64_t value = 0;
    if (!read_at(source->fd, bytes, n * width, source->start_bytes + at * width)) {
      return pp_fail(rank, PP_EXIT_INPUT, "%s: %s", source->path, errno ? strerror(errno) : "the file has become shorter");
    }
    if (!any_bad(data->kind, bytes, n, data->vocabulary)) continue;
    uint64_t place = at + first_bad(data->kind, bytes, n, data->vocabulary, &value);
    return pp_fail(rank, PP_EXIT_INPUT, "%s: token %llu is %lld, outside the vocabulary of %lld", source->path,
                   (unsigned long long)place, (long long)value, (long long)data->vocabulary);
  }
  return PP_OK;
}

static char *join_path(const char *directory, const char *path) {
  size_t n = strlen(path) + (directory ? strlen(directory) : 0) + 2;
  char *joined = malloc(n);
  int relative = directory && *directory && path[0] != '/';
  if (joined) snprintf(joined, n, "%s%s%s", relative ? directory : "", relative ? "/" : "", path);
  return joined;
}

static pp_status open_file(pp_rank *rank, int number) {
  const pp_data *data = &rank->program->data[number];
  pp_source *source = &rank->sources[number];
  const char *given = rank->options->data[number];
  struct stat st;
  source->path = given ? join_path(NULL, given) : join_path(rank->program->directory, data->path);
  if (!source->path) return pp_fail(rank, PP_EXIT_FAILED, "out of memory");
  source->fd = open(source->path, O_RDONLY | O_CLOEXEC);
  if (source->fd < 0 || fstat(source->fd, &st) != 0) {
    return pp_fail(rank, PP_EXIT_INPUT, "%s: %s (--data=%s=PATH names another file)", source->path, strerror(errno), data->name);
  }
  if (!S_ISREG(st.st_mode)) return pp_fail(rank, PP_EXIT_INPUT, "%s: not a regular file", source->path);
  PP_TRY(measure(rank, data, source, (uint64_t)st.st_size));
  return needs_scan(data) ? scan(rank, data, source) : PP_OK;
}

pp_status pp_data_open(pp_rank *rank) {
  int n = rank->program->n_data;
  rank->sources = calloc((size_t)n + 1, sizeof *rank->sources);
  if (!rank->sources) return pp_fail(rank, PP_EXIT_FAILED, "out of memory");
  for (int i = 0; i < n; i++) rank->sources[i].fd = -1;
  for (int i = 0; i < n; i++) {
    char name[512];
    snprintf(name, sizeof name, "data/%s", rank->program->data[i].name);
    rank->sources[i].name_hash = pp_hash_name(name);
    if (rank->program->data[i].used && is_file(&rank->program->data[i])) PP_TRY(open_file(rank, i));
  }
  return PP_OK;
}

void pp_data_close(pp_rank *rank) {
  for (int i = 0; rank->sources && i < rank->program->n_data; i++) {
    if (rank->sources[i].fd >= 0) close(rank->sources[i].fd);
    free(rank->sources[i].path);
  }
  free(rank->sources);
  rank->sources = NULL;
}
