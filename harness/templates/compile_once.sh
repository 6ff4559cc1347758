#!/bin/sh
# compile_once.sh KEY OUT COMPILER ARGS...: keeps COMPILER's output OUT in the agent's cache under
# KEY, so that an unchanged source is compiled only once on a host.
set -eu
kept="$RGPU_JOB_FOLDER/../../../built/$1"
out=$2
shift 2
mkdir -p "${out%/*}"
if [ ! -e "$kept" ]; then
    "$@"
    mkdir -p "${kept%/*}"
    # Renamed into place, since another job may read it now.
    cp "$out" "$kept.$$"
    mv -f "$kept.$$" "$kept"
    # Removes entries not used for a month.
    find "${kept%/*}" -type f -mtime +30 -exec rm -f {} + 2>/dev/null || :
    exit 0
fi
touch "$kept"
ln "$kept" "$out" 2>/dev/null || cp "$kept" "$out"
