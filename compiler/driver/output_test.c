/* Emitted files on disk: a new folder, one of ppc's, a foreign one; what happens on failure. */
#include "compiler/driver/output.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int failures;
static void result(bool fine, const char *name) {
  printf("%s %s\n", fine ? "ok" : "FAIL", name);
  failures += !fine;
}

static Arena *arena;
static char root[] = "/tmp/output_test.XXXXXX";

static const char *at(const char *path) { return arena_printf(arena, "%s/%s", root, path); }
static bool exists(const char *path) { return access(at(path), F_OK) == 0; }

static bool holds(const char *path, const char *text) {
  size_t size = 0;
  Str error = {0};
  const char *found = output_read_file(arena, at(path), &size, &error);
  str_free(&error);
  return found && size == strlen(text) && memcmp(found, text, size) == 0;
}

static void add(EmitFiles *files, const char *path, const char *text, bool executable) {
  VEC_PUSH(arena, files, (EmitFile){path, text, strlen(text), executable});
}

static bool put(const EmitFiles *files, const char *dir) {
  Str error = {0};
  bool fine = output_write(arena, files, at(dir), &error);
  if (!fine && error.length == 0) printf("  failed without a text\n");
  str_free(&error);
  return fine;
}

static int64_t modified(const char *path) {
  struct stat st;
  return stat(at(path), &st) == 0 ? st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec : -1;
}

/* No temporary file or folder is left anywhere. */
static bool is_clean(void) {
  return system(arena_printf(arena, "find %s -name '*ppc-tmp*' | grep -q .", root)) != 0;
}

static void try_new(void) {
  EmitFiles files = {0};
  add(&files, "a.c", "int a;\n", false);
  add(&files, "sub/deep/b.sh", "#!/bin/sh\n", true);
  result(put(&files, "x/new/") && holds("x/new/a.c", "int a;\n") && exists("x/new/sub/deep/b.sh") && is_clean(), "a new folder, with its parents");
  result(access(at("x/new/sub/deep/b.sh"), X_OK) == 0 && access(at("x/new/a.c"), X_OK) != 0, "scripts can be run");
  mkdir(at("empty"), 0777);
  result(put(&files, "empty") && holds("empty/a.c", "int a;\n"), "an empty folder is taken");
}

static void try_again(void) {
  EmitFiles files = {0};
  Str error = {0};
  output_write_file(at("x/new/mine.txt"), "keep", 4, &error);
  int64_t before = modified("x/new/a.c");
  add(&files, "a.c", "int a;\n", false);
  add(&files, "c.c", "int c;\n", false);
  result(put(&files, "x/new") && holds("x/new/c.c", "int c;\n") && is_clean(), "ppc's own folder is written again");
  result(modified("x/new/a.c") == before, "a file that stays the same is not touched");
  result(!exists("x/new/sub/deep/b.sh"), "a file of the earlier program goes");
  result(holds("x/new/mine.txt", "keep"), "a file that ppc didn't write stays");
  str_free(&error);
}

static void try_refused(void) {
  EmitFiles files = {0};
  Str error = {0};
  add(&files, "a.c", "new\n", false);
  mkdir(at("foreign"), 0777);
  output_write_file(at("foreign/a.c"), "old\n", 4, &error);
  result(!put(&files, "foreign") && holds("foreign/a.c", "old\n") && is_clean(), "a foreign folder is left alone");
  result(!put(&files, "foreign/a.c"), "a file is no folder");
  result(!put(&files, "foreign/a.c/d"), "nor is what would lie under a file");
  str_free(&error);
}

/* A list that was tampered with must not lead out of the folder. */
static void try_list(void) {
  EmitFiles files = {0};
  Str error = {0};
  add(&files, "a.c", "a\n", false);
  put(&files, "list");
  output_write_file(at("victim"), "here", 4, &error);
  const char *list = arena_printf(arena, "../victim\n%s\n", at("victim"));
  output_write_file(at("list/.ppc-files"), list, strlen(list), &error);
  result(put(&files, "list") && holds("victim", "here"), "the list of files leads nowhere else");
  str_free(&error);
}

static void try_failure(void) {
  EmitFiles files = {0};
  add(&files, "a", "1", false);
  add(&files, "a/b", "2", false); /* a is a file already */
  result(!put(&files, "fails") && !exists("fails") && is_clean(), "on failure nothing is written");
}

static bool put_files(const char *first, const char *second) {
  Str error = {0};
  OutputFile files[2] = {{at(first), "1", 1}, {at(second), "2", 1}};
  bool fine = output_write_files(files, 2, &error);
  str_free(&error);
  return fine;
}

static void try_files(void) {
  struct stat st;
  result(put_files("f1", "f2") && holds("f1", "1") && holds("f2", "2") && is_clean(), "files together");
  result(!put_files("f3", "none/f4") && !exists("f3") && is_clean(), "none is written when one can't be");
  bool linked = symlink("f1", at("link")) == 0 && put_files("f2", "link");
  result(linked && holds("f1", "2") && lstat(at("link"), &st) == 0 && S_ISLNK(st.st_mode), "a link stays, and leads to the new file");
  mkfifo(at("pipe"), 0666);
  result(!put_files("f3", "pipe") && !exists("f3") && stat(at("pipe"), &st) == 0 && S_ISFIFO(st.st_mode), "a pipe is not replaced");
}

static void try_names(void) {
  EmitFiles x = {0}, y = {0};
  add(&x, "a", "12", false);
  add(&y, "a", "21", false);
  const char *first = output_name(arena, &x), *second = output_name(arena, &y);
  result(strlen(first) == 32 && strcmp(first, second) != 0 && strcmp(first, output_name(arena, &x)) == 0, "a name for the content");
}

int main(void) {
  arena = arena_create();
  if (!mkdtemp(root)) return 1;
  try_new();
  try_again();
  try_refused();
  try_list();
  try_failure();
  try_files();
  try_names();
  output_remove(root);
  arena_destroy(arena);
  return failures != 0;
}
