/* safetensors files: an 8-byte length, a JSON header, then bytes. Opening checks the whole header,
 * every name, number, overlap and gap, before anything is believed; nothing large is allocated. The
 * only file that sees jansson. */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_HEADER_BYTES = 100 << 20 };

struct pp_tensors {
  int fd;
  json_t *header; /* owns the names */
  pp_tensor_entry *entries; /* by name, bytewise */
  size_t n;
};

typedef struct {
  const char *path;
  char *text;
  size_t text_bytes;
} Report;

static int refuse(const Report *r, const char *format, ...) PP_PRINTF(2, 3);
static int refuse(const Report *r, const char *format, ...) {
  int used = snprintf(r->text, r->text_bytes, "%s: ", r->path);
  va_list arguments;
  va_start(arguments, format);
  if (used > 0 && (size_t)used < r->text_bytes) vsnprintf(r->text + used, r->text_bytes - (size_t)used, format, arguments);
  va_end(arguments);
  return 0;
}

/* --- one entry ------------------------------------------------------------------------------------ */

static uint64_t width_of(const char *dtype) {
  static const struct { const char *name; uint64_t width; } widths[] = {
      {"F64", 8}, {"I64", 8}, {"U64", 8}, {"F32", 4}, {"I32", 4}, {"U32", 4}, {"F16", 2}, {"BF16", 2},
      {"I16", 2}, {"U16", 2}, {"I8", 1},  {"U8", 1},  {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1},
  };
  for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
    if (strcmp(widths[i].name, dtype) == 0) return widths[i].width;
  }
  return 0;
}

static int read_dtype(const Report *r, json_t *object, pp_tensor_entry *e, uint64_t *out_width) {
  const char *dtype = json_string_value(json_object_get(object, "dtype"));
  *out_width = dtype ? width_of(dtype) : 0;
  if (!*out_width) return refuse(r, "tensor %.200s: unknown dtype %.40s", e->name, dtype ? dtype : "(none)");
  snprintf(e->dtype, sizeof e->dtype, "%s", dtype);
  return 1;
}

/* More axes than ours are kept as a count only: no parameter has that many. */
static int read_shape(const Report *r, json_t *object, pp_tensor_entry *e, uint64_t width, uint64_t *out_bytes) {
  json_t *shape = json_object_get(object, "shape");
  uint64_t bytes = width;
  if (!json_is_array(shape)) return refuse(r, "tensor %.200s: no shape", e->name);
  e->n_dims = (int)json_array_size(shape);
  for (size_t i = 0; i < json_array_size(shape); i++) {
    json_t *dim = json_array_get(shape, i);
    json_int_t value = json_integer_value(dim);
    if (!json_is_integer(dim) || value < 0) return refuse(r, "tensor %.200s: axis %zu of its shape is no size", e->name, i);
    if (__builtin_mul_overflow(bytes, (uint64_t)value, &bytes)) {
      return refuse(r, "tensor %.200s: the product of its shape overflows", e->name);
    }
    if (i < PP_MAX_RANK) e->dims[i] = value;
  }
  *out_bytes = bytes;
  return 1;
}

static int read_range(const Report *r, json_t *object, pp_tensor_entry *e, uint64_t data_bytes, uint64_t expected) {
  json_t *range = json_object_get(object, "data_offsets");
  json_t *begin = json_array_get(range, 0), *end = json_array_get(range, 1);
  if (json_array_size(range) != 2 || !json_is_integer(begin) || !json_is_integer(end) || json_integer_value(begin) < 0 ||
      json_integer_value(end) < 0) {
    return refuse(r, "tensor %.200s: data_offsets are not two places", e->name);
  }
  e->begin = (uint64_t)json_integer_value(begin);
  e->end = (uint64_t)json_integer_value(end);
  unsigned long long b = e->begin, n = e->end;
  if (b > n) return refuse(r, "tensor %.200s begins at %llu and ends before it, at %llu", e->name, b, n);
  if (n > data_bytes) {
    return refuse(r, "tensor %.200s ends at %llu, the file has %llu bytes of data", e->name, n, (unsigned long long)data_bytes);
  }
  if (n - b != expected) {
    return refuse(r, "tensor %.200s has %llu bytes, its shape and dtype need %llu", e->name, n - b, (unsigned long long)expected);
  }
  return 1;
}

static int read_entry(const Report *r, const char *name, json_t *object, uint64_t data_bytes, pp_tensor_entry *e) {
  uint64_t width = 0, bytes = 0;
  e->name = name;
  if (!json_is_object(object)) return refuse(r, "tensor %.200s: no description", name);
  return read_dtype(r, object, e, &width) && read_shape(r, object, e, width, &bytes) &&
         read_range(r, object, e, data_bytes, bytes);
}

/* --- the header ----------------------------------------------------------------------------------- */

static int by_begin(const void *a, const void *b) {
  const pp_tensor_entry *x = a, *y = b;
  if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
  return x->end < y->end ? -1 : x->end > y->end;
}

static int by_name(const void *a, const void *b) {
  return strcmp(((const pp_tensor_entry *)a)->name, ((const pp_tensor_entry *)b)->name);
}

/* The format wants the data covered without overlap and without gap. */
static int check_cover(const Report *r, pp_tensor_entry *entries, size_t n, uint64_t data_bytes) {
  uint64_t at = 0;
  qsort(entries, n, sizeof *entries, by_begin);
  for (size_t i = 0; i < n; i++) {
    if (entries[i].begin < at) {
      return refuse(r, "tensors %.200s and %.200s overlap", entries[i - 1].name, entries[i].name);
    }
    if (entries[i].begin > at) {
      return refuse(r, "%llu bytes before tensor %.200s belong to no tensor", (unsigned long long)(entries[i].begin - at),
                    entries[i].name);
    }
    at = entries[i].end;
  }
  if (at != data_bytes) {
    return refuse(r, "the last %llu bytes belong to no tensor", (unsigned long long)(data_bytes - at));
  }
  return 1;
}

static int read_entries(const Report *r, pp_tensors *t, uint64_t header_end, uint64_t file_bytes) {
  const char *name;
  json_t *object;
  uint64_t data_bytes = file_bytes - header_end;
  t->entries = calloc(json_object_size(t->header) + 1, sizeof *t->entries);
  if (!t->entries) return refuse(r, "out of memory");
  json_object_foreach(t->header, name, object) {
    if (strcmp(name, "__metadata__") == 0) continue;
    if (!read_entry(r, name, object, data_bytes, &t->entries[t->n])) return 0;
    t->n++;
  }
  if (!check_cover(r, t->entries, t->n, data_bytes)) return 0;
  for (size_t i = 0; i < t->n; i++) {
    t->entries[i].begin += header_end;
    t->entries[i].end += header_end;
  }
  qsort(t->entries, t->n, sizeof *t->entries, by_name);
  return 1;
}

static int read_whole(int fd, void *out, size_t n, uint64_t at) {
  unsigned char *bytes = out;
  while (n > 0) {
    ssize_t got = pread(fd, bytes, n, (off_t)at);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return 0;
    bytes += got;
    n -= (size_t)got;
    at += (uint64_t)got;
  }
  return 1;
}

static int parse_header(const Report *r, pp_tensors *t, size_t n) {
  json_error_t error;
  char *text = malloc(n + 1);
  if (!text) return refuse(r, "out of memory");
  int fine = read_whole(t->fd, text, n, 8);
  if (fine) t->header = json_loadb(text, n, JSON_REJECT_DUPLICATES, &error);
  free(text);
  if (!fine) return refuse(r, "%s", errno ? strerror(errno) : "the file has become shorter");
  if (!t->header) return refuse(r, "its header is no valid JSON: %s, at byte %d", error.text, error.position);
  if (!json_is_object(t->header)) return refuse(r, "its header is no JSON object");
  return 1;
}

static int read_header(const Report *r, pp_tensors *t) {
  struct stat st;
  unsigned char prefix[8];
  uint64_t n = 0;
  if (fstat(t->fd, &st) != 0) return refuse(r, "%s", strerror(errno));
  if (!S_ISREG(st.st_mode)) return refuse(r, "not a regular file");
  uint64_t file_bytes = (uint64_t)st.st_size;
  if (file_bytes < 8 || !read_whole(t->fd, prefix, 8, 0)) {
    return refuse(r, "no safetensors file: %llu bytes", (unsigned long long)file_bytes);
  }
  for (int i = 7; i >= 0; i--) n = n << 8 | prefix[i];
  if (memcmp(prefix, "PK\3\4", 4) == 0 || (prefix[0] == 0x80 && prefix[1] <= 5)) {
    return refuse(r, "this is a pickle file, as torch.save writes it; only safetensors files are read");
  }
  if (n > file_bytes - 8) {
    return refuse(r, "no safetensors file, or cut short: a header of %llu bytes, but %llu follow", (unsigned long long)n,
                  (unsigned long long)(file_bytes - 8));
  }
  if (n > MAX_HEADER_BYTES) return refuse(r, "a header of %llu bytes; the limit is %d", (unsigned long long)n, MAX_HEADER_BYTES);
  return parse_header(r, t, (size_t)n) && read_entries(r, t, n + 8, file_bytes);
}

/* --- the interface --------------------------------------------------------------------------------- */

int pp_tensors_open(const char *path, pp_tensors **out_tensors, char *out_text, size_t text_bytes) {
  Report r = {path, out_text, text_bytes};
  pp_tensors *t = calloc(1, sizeof *t);
  *out_tensors = NULL;
  if (!t) return refuse(&r, "out of memory");
  t->fd = open(path, O_RDONLY | O_CLOEXEC);
  int fine = t->fd >= 0 ? read_header(&r, t) : refuse(&r, "%s", strerror(errno));
  if (!fine) {
    pp_tensors_close(t);
    return 0;
  }
  *out_tensors = t;
  return 1;
}

void pp_tensors_close(pp_tensors *t) {
  if (!t) return;
  if (t->fd >= 0) close(t->fd);
  json_decref(t->header);
  free(t->entries);
  free(t);
}

size_t pp_tensors_count(const pp_tensors *t) { return t->n; }
const pp_tensor_entry *pp_tensors_at(const pp_tensors *t, size_t i) { return &t->entries[i]; }

const pp_tensor_entry *pp_tensors_find(const pp_tensors *t, const char *name) {
  pp_tensor_entry key = {.name = name};
  return bsearch(&key, t->entries, t->n, sizeof *t->entries, by_name);
}

int pp_tensors_read(const pp_tensors *t, uint64_t at, void *out_bytes, size_t size_bytes) {
  errno = 0;
  return read_whole(t->fd, out_bytes, size_bytes, at);
}
