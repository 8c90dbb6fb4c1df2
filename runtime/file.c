/* Files that a job leaves behind: written under a temporary name beside the last one, synced, renamed.
 * Whatever fails, an older file of that name is still whole, and the message names the file and the reason. */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static pp_status refuse(pp_rank *rank, const pp_file *file, const char *what) {
  return pp_fail(rank, PP_EXIT_FAILED, "%s: can't %s: %s", file->path, what, strerror(errno));
}

pp_status pp_file_open(pp_rank *rank, pp_file *file, const char *path) {
  size_t n = strlen(path) + 32;
  file->path = path;
  file->fd = -1;
  file->temporary = malloc(n);
  if (!file->temporary) return pp_fail(rank, PP_EXIT_FAILED, "out of memory");
  snprintf(file->temporary, n, "%s.tmp-%ld", path, (long)getpid()); /* two jobs never share one */
  atomic_store(&rank->temporary, file->temporary);
  file->fd = open(file->temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  return file->fd >= 0 ? PP_OK : refuse(rank, file, "make a temporary file beside it");
}

pp_status pp_file_write(pp_rank *rank, const pp_file *file, const void *bytes, size_t size_bytes) {
  const unsigned char *at = bytes;
  while (size_bytes > 0) {
    ssize_t written = write(file->fd, at, size_bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return refuse(rank, file, "write");
    at += written;
    size_bytes -= (size_t)written;
  }
  return PP_OK;
}

char *pp_file_directory(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? strndup(path, slash == path ? 1 : (size_t)(slash - path)) : strdup(".");
}

static void sync_directory(const char *path) {
  char *directory = pp_file_directory(path);
  int fd = directory ? open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
  if (fd >= 0) fsync(fd);
  if (fd >= 0) close(fd);
  free(directory);
}

pp_status pp_file_publish(pp_rank *rank, pp_file *file) {
  if (fsync(file->fd) != 0) return refuse(rank, file, "write");
  int closed = close(file->fd);
  file->fd = -1;
  if (closed != 0) return refuse(rank, file, "write");
  if (rename(file->temporary, file->path) != 0) return refuse(rank, file, "rename the temporary file");
  atomic_store(&rank->temporary, NULL);
  free(file->temporary);
  file->temporary = NULL;
  sync_directory(file->path);
  return PP_OK;
}

void pp_file_destroy(pp_rank *rank, pp_file *file) {
  atomic_store(&rank->temporary, NULL);
  if (file->temporary && file->fd >= 0) close(file->fd);
  if (file->temporary) unlink(file->temporary);
  free(file->temporary);
  file->temporary = NULL;
}

pp_status pp_file_check(pp_rank *rank, const char *option, const char *path) {
  struct stat st;
  char *directory = pp_file_directory(path);
  if (!directory) return pp_fail(rank, PP_EXIT_FAILED, "out of memory");
  int exists = stat(path, &st) == 0, error = access(directory, W_OK) == 0 ? 0 : errno;
  free(directory);
  if (exists && S_ISDIR(st.st_mode)) error = EISDIR;
  else if (exists && !S_ISREG(st.st_mode)) return pp_fail(rank, PP_EXIT_INPUT, "%s=%s: not a plain file", option, path);
  if (error) return pp_fail(rank, PP_EXIT_INPUT, "%s=%s: %s", option, path, strerror(error));
  return PP_OK;
}
