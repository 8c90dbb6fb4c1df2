#!/bin/sh
# Prints a C file with the runtime's sources as strings, for emitted programs:
#   sh codegen/embed.sh runtime/*.c … > build/codegen/runtime_files.c
# Tests (*_test.c) and their chain of tasks are left out. One literal per line of source: C11 promises 4095 characters for one,
# but every compiler in use joins far more.
set -eu
LC_ALL=C
export LC_ALL
echo '/* Made by codegen/embed.sh; do not edit. */'
echo '#include "codegen/parts.h"'
n=0
for file in "$@"; do
  case $file in *_test.c | runtime/chain.* | runtime/test.h) continue ;; esac
  echo
  echo "static const char file_$n[] ="
  sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/?/\\?/g' -e 's/^/    "/' -e 's/$/\\n"/' "$file"
  echo '    "";'
  n=$((n + 1))
done
echo
echo 'const EmbeddedFile codegen_runtime_files[] = {'
n=0
for file in "$@"; do
  case $file in *_test.c | runtime/chain.* | runtime/test.h) continue ;; esac
  echo "    {\"$file\", file_$n, sizeof file_$n - 1},"
  n=$((n + 1))
done
echo '};'
echo "const int codegen_runtime_file_count = $n;"
