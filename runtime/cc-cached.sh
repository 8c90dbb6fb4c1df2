#!/bin/sh
# Compiles one file, or takes the object from a cache:
#   cc-cached.sh OBJECT SOURCE COMPILER FLAGS…
# Of device code (SOURCE ends with .cu) FLAGS say what comes out, and $INCLUDED names what the source includes.
# An object's name is the SHA-256 of the compiler's version, the flags and the preprocessed source; of device code,
# of the source and what it includes. The cache is $OBJECT_CACHE, else ~/.cache/ppc/objects; OBJECT_CACHE= (empty)
# turns it off. Files appear by renaming, so that any number of builds can share it; whatever goes wrong with it,
# the compiler runs.
set -eu
object=$1 source=$2
shift 2

case $source in
*.cu)
  compile() { "$@" -o "$object.$$" "$source" && mv -f "$object.$$" "$object"; }
  preprocess() { cat "$source" ${INCLUDED:-} >"$object.$$.i"; }
  ;;
*)
  compile() { "$@" "-ffile-prefix-map=$PWD=." -c -o "$object.$$" "$source" && mv -f "$object.$$" "$object"; }
  # With -g the compiler adds a line that names the present folder, which objects don't depend on.
  preprocess() { "$@" -E -o "$object.$$.all" "$source" && sed '2{/^# 1 ".*\/\/"$/d;}' "$object.$$.all" >"$object.$$.i"; }
  ;;
esac

trap 'rm -f "$object.$$" "$object.$$.i" "$object.$$.all"' EXIT
trap 'exit 130' INT TERM HUP
if [ -z "${OBJECT_CACHE+set}" ]; then
  OBJECT_CACHE=${XDG_CACHE_HOME:-${HOME:+$HOME/.cache}}
  OBJECT_CACHE=${OBJECT_CACHE:+$OBJECT_CACHE/ppc/objects}
fi
if [ -z "$OBJECT_CACHE" ] || ! command -v sha256sum >/dev/null || ! mkdir -p "$OBJECT_CACHE" 2>/dev/null; then
  compile "$@"
  exit
fi

preprocess "$@"
key=$({ "$@" --version; printf '%s\n' "$@"; cat "$object.$$.i"; } | sha256sum)
cached=$OBJECT_CACHE/${key%% *}.o
if cp "$cached" "$object.$$" 2>/dev/null; then
  touch -c "$cached" 2>/dev/null || true # what is in use is not pruned
  mv -f "$object.$$" "$object"
  exit
fi
compile "$@"
{ cp "$object" "$cached.$$" && mv -f "$cached.$$" "$cached"; } 2>/dev/null || rm -f "$cached.$$" 2>/dev/null || true
