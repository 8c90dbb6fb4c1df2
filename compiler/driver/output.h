/* Emitted files on disk. */
#ifndef PPC_OUTPUT_H
#define PPC_OUTPUT_H

#include "codegen/emit.h"

/* Writes the files into `dir`, which comes into being as a whole, or was made by ppc (then files that are
 * the same stay untouched, those of an earlier program go, and all that ppc didn't write stays).
 * On failure returns false with a text, and what was in `dir` is as it was unless the disk failed half way
 * through renaming. */
bool output_write(Arena *arena, const EmitFiles *files, const char *dir, Str *out_error);

typedef struct {
  const char *path, *text;
  size_t size;
} OutputFile;

/* Files by temporary names and renames, all or none as far as disks allow. They keep the mode of old ones and stand
 * behind links; what is there and is no plain file is refused. */
bool output_write_files(const OutputFile *files, int n, Str *out_error);
bool output_write_file(const char *path, const char *text, size_t size, Str *out_error);

/* Whether both names, or links, lead to one file. */
bool output_is_one_file(const char *x, const char *y);

/* mkdir -p. */
bool output_make_folders(const char *path, Str *out_error);

/* rm -rf; errors are ignored. */
void output_remove(const char *path);

/* A name for the content of all files: 32 hexadecimal digits. */
const char *output_name(Arena *arena, const EmitFiles *files);

/* The whole file, or null with a text. */
char *output_read_file(Arena *arena, const char *path, size_t *out_size, Str *out_error);

#endif
