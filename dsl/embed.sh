#!/bin/sh
# Prints a C file with the library's sources as strings:
#   sh dsl/embed.sh dsl/lib/*.pp > build/dsl_lib.c
# One string for each line: C11 promises 4095 characters for one literal, but
# every compiler in use joins far more.
set -eu
echo '// Made by dsl/embed.sh; do not edit.'
echo '#include "dsl/load.h"'
echo
echo 'const DslLibFile dsl_library[] = {'
for file in "$@"; do
  printf '    {"%s",\n' "$(basename "$file" .pp)"
  sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/^/     "/' -e 's/$/\\n"/' "$file"
  echo '    },'
done
echo '};'
echo "const int dsl_library_count = $#;"
