#!/bin/sh
# Prints a C file with the parts of the page as strings:
#   sh compiler/page/embed.sh compiler/page/page.css compiler/page/page.js > build/compiler/page.c
set -eu
LC_ALL=C
export LC_ALL
echo '/* Made by compiler/page/embed.sh; do not edit. */'
for file in "$@"; do
  name=$(basename "$file" | tr . _)
  echo
  echo "extern const char picture_$name[];"
  echo "const char picture_$name[] ="
  sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/?/\\?/g' -e 's/^/    "/' -e 's/$/\\n"/' "$file"
  echo '    "";'
done
