#include <stdint.h>

#include "internal.h"
#include "test.h"

static char path[64] = "/tmp/pp-tensors-XXXXXX";
static char text[1024];

static void write_file(const void *bytes, size_t n) {
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (fd < 0 || write(fd, bytes, n) != (ssize_t)n) abort();
  close(fd);
}

/* A file with this header and n bytes of data. */
static int open_text(const char *header, size_t n_data) {
  static unsigned char bytes[1 << 21];
  size_t n = strlen(header);
  memset(bytes, 0, sizeof bytes);
  for (int i = 0; i < 8; i++) bytes[i] = (unsigned char)((uint64_t)n >> (8 * i));
  memcpy(bytes + 8, header, n);
  write_file(bytes, 8 + n + n_data);
  pp_tensors *t;
  int fine = pp_tensors_open(path, &t, text, sizeof text);
  pp_tensors_close(t);
  return fine;
}

static void refused(const char *header, size_t n_data, const char *part) {
  CHECK(!open_text(header, n_data));
  CHECK_TEXT(text, path);
  CHECK_TEXT(text, part);
}

static void good_files_are_read(void) {
  CHECK(open_text("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8));
  CHECK(open_text("{\"__metadata__\":{\"format\":\"pt\"},\"b\":{\"dtype\":\"F64\",\"shape\":[],\"data_offsets\":[8,16]},"
                  "\"a\":{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":[0,8]}}   ", 16));
  CHECK(open_text("{\"a\":{\"dtype\":\"F32\",\"shape\":[0,5],\"data_offsets\":[0,0]}}", 0));
  CHECK(open_text("{}", 0));
}

static void bad_ranges_are_refused(void) {
  refused("{\"wte\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}}", 8, "wte begins at 8 and ends before it, at 0");
  refused("{\"wte\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 4, "wte ends at 8, the file has 4");
  refused("{\"wte\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,8]}}", 8, "has 8 bytes, its shape and dtype need 12");
  refused("{\"wte\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[-8,0]}}", 8, "wte");
  refused("{\"wte\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0]}}", 8, "wte");
  refused("{\"wte\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,9223372036854775807]}}", 8, "9223372036854775807");
  refused("{\"wte\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,9223372036854775808]}}", 8, "JSON");
  refused("{\"wte\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8.0]}}", 8, "wte");
}

static void bad_shapes_are_refused(void) {
  refused("{\"wte\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,8]}}", 8, "overflows");
  refused("{\"wte\":{\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]}}", 8, "axis 0");
  refused("{\"wte\":{\"dtype\":\"F32\",\"shape\":2,\"data_offsets\":[0,8]}}", 8, "shape");
  refused("{\"wte\":{\"dtype\":\"F99\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "F99");
  refused("{\"wte\":7}", 8, "wte");
}

static void overlaps_and_gaps_are_refused(void) {
  refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]}}",
          12, "a and b overlap");
  refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,12]}}",
          12, "4 bytes before tensor b");
  refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 12, "last 8 bytes");
}

static void bad_headers_are_refused(void) {
  static char deep[200001];
  refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
          "duplicate");
  refused("[1,2]", 0, "no JSON object");
  refused("{\"a\":", 0, "JSON");
  memset(deep, '[', 100000);
  memset(deep + 100000, ']', 100000);
  refused(deep, 0, "JSON");
  memcpy(deep, "{\"a\":", 5);
  refused(deep, 0, "JSON");
}

static void bad_lengths_are_refused(void) {
  unsigned char bytes[64] = {0};
  pp_tensors *t;
  bytes[7] = 0x80; /* 2^63 */
  write_file(bytes, sizeof bytes);
  CHECK(!pp_tensors_open(path, &t, text, sizeof text) && !t);
  CHECK_TEXT(text, "9223372036854775808");
  memset(bytes, 0xff, 8);
  write_file(bytes, sizeof bytes);
  CHECK(!pp_tensors_open(path, &t, text, sizeof text));
  memset(bytes, 0, sizeof bytes);
  bytes[0] = 100;
  write_file(bytes, sizeof bytes);
  CHECK(!pp_tensors_open(path, &t, text, sizeof text));
  CHECK_TEXT(text, "100 bytes, but 56 follow");
  write_file(bytes, 0);
  CHECK(!pp_tensors_open(path, &t, text, sizeof text));
  write_file(bytes, 5);
  CHECK(!pp_tensors_open(path, &t, text, sizeof text));
  write_file("\x80\x02}q\x00ctorch", 11);
  CHECK(!pp_tensors_open(path, &t, text, sizeof text));
  CHECK_TEXT(text, "pickle");
  write_file("PK\3\4 a zip of torch.save", 24);
  CHECK(!pp_tensors_open(path, &t, text, sizeof text));
  CHECK_TEXT(text, "pickle");
  CHECK(!pp_tensors_open("/nowhere/x", &t, text, sizeof text));
  CHECK_TEXT(text, "No such file");
  CHECK(!pp_tensors_open("/tmp", &t, text, sizeof text));
}

/* Every cut and every changed byte of a small file is read or refused, and nothing else. */
static void damaged_files_do_no_harm(void) {
  static const char good[] = "{\"a\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[0,8]},\"b\":{\"dtype\":\"F16\",\"shape\":[3],\"data_offsets\":[8,14]}}";
  unsigned char file[512] = {0}, changed[512];
  size_t n = sizeof good - 1, total = 8 + n + 14;
  pp_tensors *t;
  file[0] = (unsigned char)n;
  memcpy(file + 8, good, n);
  for (size_t cut = 0; cut < total; cut++) {
    write_file(file, cut);
    CHECK(!pp_tensors_open(path, &t, text, sizeof text));
  }
  uint32_t x = 1;
  for (int i = 0; i < 3000; i++) {
    memcpy(changed, file, total);
    for (int k = 0; k < 2; k++) {
      x = x * 1664525 + 1013904223;
      changed[(x >> 8) % total] = (unsigned char)(x >> 20);
    }
    write_file(changed, total);
    if (pp_tensors_open(path, &t, text, sizeof text)) pp_tensors_close(t);
  }
}

int main(void) {
  int fd = mkstemp(path);
  if (fd < 0) return 1;
  close(fd);
  TEST(good_files_are_read);
  TEST(bad_ranges_are_refused);
  TEST(bad_shapes_are_refused);
  TEST(overlaps_and_gaps_are_refused);
  TEST(bad_headers_are_refused);
  TEST(bad_lengths_are_refused);
  TEST(damaged_files_do_no_harm);
  unlink(path);
  return test_failures != 0;
}
