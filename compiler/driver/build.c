/* Builds emitted programs for `ppc run`. In: the files. Out: a folder with the programs. Without -o it is
 * $XDG_CACHE_HOME/ppc/programs/NAME, where NAME hashes all files, compiler and CPU level: the same model with
 * the same options is built once. A folder counts when `.built` stands in it; it comes into being by renaming, so that
 * several ppc can work at once. What nobody used for a while is removed after a build. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "compiler/driver/output.h"
#include "compiler/driver/run.h"

enum { KEPT_PROGRAMS_DAYS = 7, KEPT_OBJECTS_DAYS = 30 };

extern char **environ;

/* --- the cache --------------------------------------------------------------------------------------- */

/* Null: there is no place for one. */
static const char *cache_folder(Arena *arena) {
  const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
  if (xdg && xdg[0] == '/') return arena_printf(arena, "%s/ppc", xdg);
  if (home && home[0] == '/') return arena_printf(arena, "%s/.cache/ppc", home);
  return NULL;
}

static void remove_old(Arena *arena, const char *folder, int days) {
  DIR *d = opendir(folder);
  time_t limit = time(NULL) - (time_t)days * 24 * 3600;
  if (!d) return;
  for (struct dirent *e; (e = readdir(d));) {
    struct stat st;
    const char *path = arena_printf(arena, "%s/%s", folder, e->d_name);
    if (e->d_name[0] == '.' || lstat(path, &st) != 0 || st.st_mtime >= limit) continue;
    output_remove(path);
  }
  closedir(d);
}

static bool is_built(Arena *arena, const char *dir) { return access(arena_printf(arena, "%s/.built", dir), F_OK) == 0; }

static bool mark_built(Arena *arena, const char *dir) {
  Str ignored = {0};
  bool fine = output_write_file(arena_printf(arena, "%s/.built", dir), "", 0, &ignored);
  str_free(&ignored);
  return fine;
}

/* --- make ----------------------------------------------------------------------------------------------- */

/* The environment without what a make above us has set. */
static char **make_environment(Arena *arena) {
  static const char *const dropped[] = {"MAKEFLAGS=", "MFLAGS=", "MAKELEVEL=", "MAKEOVERRIDES=", "GNUMAKEFLAGS=", "CHECK="};
  int n = 0;
  while (environ[n]) n++;
  char **copy = arena_alloc_array(arena, (size_t)n + 1, sizeof *copy);
  int kept = 0;
  for (int i = 0; i < n; i++) {
    bool drop = false;
    for (size_t k = 0; k < sizeof dropped / sizeof *dropped; k++) drop |= str_starts_with(environ[i], dropped[k]);
    if (!drop) copy[kept++] = environ[i];
  }
  return copy;
}

/* What decides what is built, beside the files. */
static const char *build_environment(Arena *arena, const char *levels) {
  static const char *const names[] = {"CC", "CUDA", "NCCL"};
  const char *text = levels ? levels : "";
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) text = arena_printf(arena, "%s %s", text, getenv(names[i]) ? getenv(names[i]) : "");
  return text;
}

/* Programs in the cache run on this host only, so kernels are built for its level alone: a third of the
 * time. Null: all levels. PP_CPU_LEVEL chooses a lower one, as it does at start. */
static const char *host_levels(Arena *arena, const Options *options) {
  int level = options->compile.target == PP_TARGET_CPU ? pp_cpu_level() : 0;
  return level ? arena_printf(arena, "LEVELS=%d", level) : NULL;
}

/* Starts `make` with its output in a pipe; returns the pid, or -1 with errno. */
static pid_t start_make(Arena *arena, const char *dir, const char *levels, int *out_pipe) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return -1;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 2);
  long n_cpus = sysconf(_SC_NPROCESSORS_ONLN);
  char *arguments[] = {"make", "-s", "-C", (char *)dir, arena_printf(arena, "-j%ld", n_cpus > 0 ? n_cpus : 1), "all", (char *)levels, NULL};
  pid_t pid;
  int error = posix_spawnp(&pid, "make", &actions, NULL, arguments, make_environment(arena));
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  *out_pipe = ends[0];
  if (error == 0) return pid;
  close(ends[0]);
  errno = error;
  return -1;
}

static void read_all(int fd, Str *out) {
  char piece[4096];
  for (;;) {
    ssize_t n = read(fd, piece, sizeof piece);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    str_append(out, piece, (size_t)n);
  }
  close(fd);
}

static bool run_make(Arena *arena, const char *dir, const char *levels) {
  int fd = -1, status = 0;
  Str said = {0};
  pid_t pid = start_make(arena, dir, levels, &fd);
  if (pid < 0) {
    fprintf(stderr, "ppc: cannot start make: %s\n", strerror(errno));
    return false;
  }
  read_all(fd, &said);
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
  bool fine = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  if (!fine) fprintf(stderr, "%sppc: the emitted programs in '%s' did not build\n", str_text(&said), dir);
  str_free(&said);
  return fine;
}

/* --- entry ------------------------------------------------------------------------------------------------ */

static bool write_program(Arena *arena, const EmitFiles *files, const char *dir) {
  Str error = {0};
  bool fine = output_write(arena, files, dir, &error);
  if (!fine) fprintf(stderr, "ppc: %s\n", str_text(&error));
  str_free(&error);
  return fine;
}

static bool make_program(Arena *arena, const char *dir, const char *levels, const Options *options) {
  bool tells = isatty(2) && !options->quiet && !options->json;
  if (tells) fprintf(stderr, "building …\r");
  bool fine = run_make(arena, dir, levels);
  if (tells) fprintf(stderr, "          \r");
  return fine;
}

static bool emit_and_make(Arena *arena, const EmitFiles *files, const char *dir, const char *levels, const Options *options) {
  return write_program(arena, files, dir) && make_program(arena, dir, levels, options);
}

/* In a folder that is removed after the run. */
static const char *build_apart(Arena *arena, const EmitFiles *files, const Options *options, bool *out_temporary) {
  const char *base = getenv("TMPDIR");
  char *dir = arena_printf(arena, "%s/ppc-run.XXXXXX", base && base[0] ? base : "/tmp");
  if (!mkdtemp(dir)) {
    fprintf(stderr, "ppc: cannot make a folder '%s': %s\n", dir, strerror(errno));
    return NULL;
  }
  *out_temporary = !options->keep;
  if (emit_and_make(arena, files, dir, host_levels(arena, options), options)) return dir;
  output_remove(dir);
  return NULL;
}

static const char *build_cached(Arena *arena, const EmitFiles *files, const char *cache, const Options *options) {
  const char *levels = host_levels(arena, options), *compiler = build_environment(arena, levels);
  const char *programs = arena_printf(arena, "%s/programs", cache);
  const char *dir = arena_printf(arena, "%s/%s-%08x", programs, output_name(arena, files),
                                 (unsigned)str_hash(compiler, strlen(compiler)));
  if (is_built(arena, dir)) {
    utimensat(AT_FDCWD, dir, NULL, 0); /* in use: kept */
    return dir;
  }
  const char *fresh = arena_printf(arena, "%s.%ld", dir, (long)getpid());
  if (!emit_and_make(arena, files, fresh, levels, options) || !mark_built(arena, fresh)) {
    output_remove(fresh);
    return NULL;
  }
  if (rename(fresh, dir) != 0) output_remove(fresh); /* another ppc was faster */
  remove_old(arena, programs, KEPT_PROGRAMS_DAYS);
  remove_old(arena, arena_printf(arena, "%s/objects", cache), KEPT_OBJECTS_DAYS);
  if (is_built(arena, dir)) return dir;
  fprintf(stderr, "ppc: cannot make the folder '%s'\n", dir);
  return NULL;
}

/* Ours until this process ends: programs that another ppc runs must not be built anew under it. File
 * systems that know no locks give none. Not inherited by make and ranks. */
static bool lock_folder(const char *dir) {
  int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return true;
  close(fd);
  fprintf(stderr, "ppc: another ppc runs the programs in '%s': give this run another folder with -o\n", dir);
  return false;
}

/* The folder may come into being only now, so it is locked again when it is there. */
static const char *build_in(Arena *arena, const EmitFiles *files, const char *dir, const Options *options) {
  bool is_new = access(dir, F_OK) != 0;
  if (!is_new && !lock_folder(dir)) return NULL;
  if (!write_program(arena, files, dir)) return NULL;
  if (is_new && !lock_folder(dir)) return NULL;
  return make_program(arena, dir, NULL, options) ? dir : NULL;
}

static bool is_writable(const char *folder) {
  Str ignored = {0};
  bool fine = output_make_folders(folder, &ignored) && access(folder, W_OK | X_OK) == 0;
  str_free(&ignored);
  return fine;
}

const char *build_program(Arena *arena, const EmitFiles *files, const Options *options, bool *out_temporary) {
  *out_temporary = false;
  if (options->output) return build_in(arena, files, options->output, options);
  const char *cache = cache_folder(arena);
  if (cache && is_writable(arena_printf(arena, "%s/programs", cache))) return build_cached(arena, files, cache, options);
  return build_apart(arena, files, options, out_temporary);
}
