/* Emitted files on disk. In: files in memory and a folder. Out: the folder, all or nothing: a new one is
 * made under a temporary name beside it and renamed; into one that ppc made before, files are renamed one
 * by one from a temporary folder inside it. `.ppc-files` in the folder lists what ppc wrote there; a folder
 * that has other things and no such list is refused. */
#include "compiler/driver/output.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "compiler/base/map.h"

#define MANIFEST ".ppc-files"

static bool fail(Str *out_error, const char *what, const char *path) {
  str_printf(out_error, "%s '%s': %s", what, path, strerror(errno));
  return false;
}

/* --- reading and writing ------------------------------------------------------------------------------- */

char *output_read_file(Arena *arena, const char *path, size_t *out_size, Str *out_error) {
  FILE *f = strcmp(path, "-") == 0 ? stdin : fopen(path, "rb");
  Str text = {0};
  char piece[65536];
  size_t n;
  if (!f) {
    fail(out_error, "cannot read", path);
    return NULL;
  }
  while ((n = fread(piece, 1, sizeof piece, f)) > 0) str_append(&text, piece, n);
  bool failed = ferror(f) != 0;
  if (failed) fail(out_error, "cannot read", path);
  if (f != stdin) fclose(f);
  char *copy = failed ? NULL : arena_strndup(arena, str_text(&text), text.length);
  *out_size = text.length;
  str_free(&text);
  return copy;
}

static bool write_all(int fd, const char *text, size_t size) {
  while (size > 0) {
    ssize_t n = write(fd, text, size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    text += n;
    size -= (size_t)n;
  }
  return true;
}

static bool write_new(const char *path, const char *text, size_t size, mode_t mode, Str *out_error) {
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
  if (fd < 0) return fail(out_error, "cannot write", path);
  bool fine = write_all(fd, text, size);
  int error = errno;
  if (close(fd) != 0 && fine) {
    fine = false;
    error = errno;
  }
  errno = error;
  return fine || fail(out_error, "cannot write", path);
}

/* Where the bytes of `path` go: behind links, and never in the place of a device, a pipe or a socket. */
static const char *target_of(Arena *arena, const char *path, mode_t *out_mode, Str *out_error) {
  struct stat old;
  *out_mode = 0666;
  if (stat(path, &old) != 0) return path;
  *out_mode = old.st_mode & 0777;
  if (!S_ISREG(old.st_mode)) {
    str_printf(out_error, "cannot write '%s': not a plain file", path);
    return NULL;
  }
  char *real = realpath(path, NULL);
  const char *target = real ? arena_printf(arena, "%s", real) : path;
  free(real);
  return target;
}

/* The name of a new file beside the target that holds it all; null after an error. */
static const char *write_beside(Arena *arena, const OutputFile *file, const char *target, mode_t mode, Str *out_error) {
  const char *temporary = arena_printf(arena, "%s.ppc-tmp.%ld", target, (long)getpid());
  Str ignored = {0};
  bool fine = write_new(temporary, file->text, file->size, mode, &ignored);
  str_free(&ignored);
  if (fine) return temporary;
  fail(out_error, "cannot write", file->path);
  unlink(temporary);
  return NULL;
}

bool output_write_files(const OutputFile *files, int n, Str *out_error) {
  Arena *arena = arena_create();
  const char **targets = arena_alloc_array(arena, (size_t)n, sizeof *targets);
  const char **temporaries = arena_alloc_array(arena, (size_t)n, sizeof *temporaries);
  bool fine = true;
  for (int i = 0; fine && i < n; i++) {
    mode_t mode;
    targets[i] = target_of(arena, files[i].path, &mode, out_error);
    if (targets[i]) temporaries[i] = write_beside(arena, &files[i], targets[i], mode, out_error);
    fine = temporaries[i] != NULL;
  }
  for (int i = 0; fine && i < n; i++) {
    fine = rename(temporaries[i], targets[i]) == 0 || fail(out_error, "cannot write", files[i].path);
    if (fine) temporaries[i] = NULL;
  }
  for (int i = 0; i < n; i++)
    if (temporaries[i]) unlink(temporaries[i]);
  arena_destroy(arena);
  return fine;
}

bool output_write_file(const char *path, const char *text, size_t size, Str *out_error) {
  return output_write_files(&(OutputFile){path, text, size}, 1, out_error);
}

bool output_is_one_file(const char *x, const char *y) {
  struct stat a, b;
  if (strcmp(x, y) == 0) return true;
  return stat(x, &a) == 0 && stat(y, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

static bool make_folder(const char *path, Str *out_error) {
  struct stat st;
  if (mkdir(path, 0777) == 0) return true;
  if (errno == EEXIST && stat(path, &st) == 0 && S_ISDIR(st.st_mode)) return true;
  return fail(out_error, "cannot make the folder", path);
}

/* Makes what stands before each '/' from `from` on. */
static bool make_parents(const char *path, size_t from, Str *out_error) {
  Str part = {0};
  bool fine = true;
  for (size_t i = from; fine && path[i]; i++) {
    if (path[i] != '/' || i == 0) continue;
    str_clear(&part);
    str_append(&part, path, i);
    fine = make_folder(part.text, out_error);
  }
  str_free(&part);
  return fine;
}

bool output_make_folders(const char *path, Str *out_error) {
  return make_parents(path, 0, out_error) && make_folder(path, out_error);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw) {
  (void)st, (void)type, (void)ftw;
  remove(path);
  return 0;
}

void output_remove(const char *path) { nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS); }

/* --- names ---------------------------------------------------------------------------------------------- */

/* Two independent 64-bit hashes over the hashes of all files. */
const char *output_name(Arena *arena, const EmitFiles *files) {
  Str all = {0}, other = {0};
  for (int i = 0; i < files->n; i++) {
    const EmitFile *f = &files->at[i];
    str_printf(&all, "%s %zu %016llx\n", f->path, f->size, (unsigned long long)str_hash(f->text, f->size));
    size_t half = f->size / 2;
    str_printf(&other, "%016llx%016llx\n", (unsigned long long)str_hash(f->text, half),
               (unsigned long long)str_hash(f->text + half, f->size - half));
  }
  const char *name = arena_printf(arena, "%016llx%016llx", (unsigned long long)str_hash(str_text(&all), all.length),
                                  (unsigned long long)str_hash(str_text(&other), other.length));
  str_free(&all);
  str_free(&other);
  return name;
}

static bool is_safe_path(const char *path) {
  return path[0] && path[0] != '/' && !strstr(path, "..");
}

/* --- the list of what ppc wrote --------------------------------------------------------------------------- */

static void list_files(Str *out, const EmitFiles *files) {
  str_puts(out, "# Written by ppc; it may replace these files and remove them.\n");
  for (int i = 0; i < files->n; i++) str_printf(out, "%s\n", files->at[i].path);
}

/* Removes files of the earlier program that the new one lacks. */
static void remove_stale(Arena *arena, const EmitFiles *files, const char *dir) {
  Map now = {0};
  Str ignored = {0};
  size_t size;
  for (int i = 0; i < files->n; i++) map_put(arena, &now, files->at[i].path, NULL);
  char *line = output_read_file(arena, arena_printf(arena, "%s/" MANIFEST, dir), &size, &ignored);
  while (line && *line) {
    char *end = strchr(line, '\n');
    if (end) *end = '\0';
    if (line[0] != '#' && is_safe_path(line) && !map_find(&now, line)) unlink(arena_printf(arena, "%s/%s", dir, line));
    line = end ? end + 1 : NULL;
  }
  str_free(&ignored);
}

/* --- writing a folder ---------------------------------------------------------------------------------------- */

static bool write_into(Arena *arena, const EmitFiles *files, const char *dir, Str *out_error) {
  if (!make_folder(dir, out_error)) return false;
  for (int i = 0; i < files->n; i++) {
    const EmitFile *f = &files->at[i];
    const char *path = arena_printf(arena, "%s/%s", dir, f->path);
    if (!make_parents(path, strlen(dir) + 1, out_error)) return false;
    if (!write_new(path, f->text, f->size, f->executable ? 0777 : 0666, out_error)) return false;
  }
  Str list = {0};
  list_files(&list, files);
  bool fine = write_new(arena_printf(arena, "%s/" MANIFEST, dir), list.text, list.length, 0666, out_error);
  str_free(&list);
  return fine;
}

static bool write_fresh(Arena *arena, const EmitFiles *files, const char *dir, Str *out_error) {
  const char *temporary = arena_printf(arena, "%s.ppc-tmp.%ld", dir, (long)getpid());
  bool fine = make_parents(dir, 0, out_error) && write_into(arena, files, temporary, out_error);
  if (fine && rename(temporary, dir) != 0) fine = fail(out_error, "cannot make", dir);
  if (!fine) output_remove(temporary);
  return fine;
}

static bool is_same(Arena *arena, const char *path, const EmitFile *f) {
  struct stat st;
  Str ignored = {0};
  size_t size = 0;
  if (stat(path, &st) != 0 || !S_ISREG(st.st_mode) || (size_t)st.st_size != f->size) return false;
  const char *text = output_read_file(arena, path, &size, &ignored);
  str_free(&ignored);
  return text && size == f->size && memcmp(text, f->text, size) == 0;
}

static bool move_file(Arena *arena, const char *from, const char *to, const EmitFile *f, Str *out_error) {
  const char *target = arena_printf(arena, "%s/%s", to, f->path);
  if (is_same(arena, target, f)) return true;
  if (!make_parents(target, strlen(to) + 1, out_error)) return false;
  if (rename(arena_printf(arena, "%s/%s", from, f->path), target) != 0) return fail(out_error, "cannot write", target);
  return true;
}

static bool write_over(Arena *arena, const EmitFiles *files, const char *dir, Str *out_error) {
  const char *temporary = arena_printf(arena, "%s/.ppc-tmp.%ld", dir, (long)getpid());
  bool fine = write_into(arena, files, temporary, out_error);
  for (int i = 0; fine && i < files->n; i++) fine = move_file(arena, temporary, dir, &files->at[i], out_error);
  if (fine) {
    remove_stale(arena, files, dir);
    const char *list = arena_printf(arena, "%s/" MANIFEST, dir);
    if (rename(arena_printf(arena, "%s/" MANIFEST, temporary), list) != 0) fine = fail(out_error, "cannot write", list);
  }
  output_remove(temporary);
  return fine;
}

/* 1: nothing in it, or ppc's; 0: foreign; -1: can't be read. */
static int may_write(Arena *arena, const char *dir) {
  if (access(arena_printf(arena, "%s/" MANIFEST, dir), F_OK) == 0) return 1;
  DIR *d = opendir(dir);
  if (!d) return -1;
  int n = 0;
  for (struct dirent *e; (e = readdir(d));) n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
  closedir(d);
  return n == 0;
}

bool output_write(Arena *arena, const EmitFiles *files, const char *dir, Str *out_error) {
  size_t n = strlen(dir);
  while (n > 1 && dir[n - 1] == '/') n--;
  dir = arena_strndup(arena, dir, n);
  struct stat st;
  if (stat(dir, &st) != 0) return write_fresh(arena, files, dir, out_error);
  if (!S_ISDIR(st.st_mode)) {
    str_printf(out_error, "'%s' is not a folder", dir);
    return false;
  }
  int may = may_write(arena, dir);
  if (may < 0) return fail(out_error, "cannot read the folder", dir);
  if (may == 0) {
    str_printf(out_error, "'%s' holds files that ppc did not write; name a new or an empty folder", dir);
    return false;
  }
  return write_over(arena, files, dir, out_error);
}
