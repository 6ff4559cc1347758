#!/bin/sh
# build_program.sh SYSTEM NAME TARGET ARCH OUT NVCC…: builds the program of the current folder with
# SYSTEM (cmake or make) and links it as OUT. Of several programs TARGET is taken, else the one
# called NAME, else main, else the first by name. NVCC… are the words that start nvcc; ARCH is the
# GPU's, as CMake writes it, or empty.
set -u
system=$1 name=$2 target=$3 arch=$4 out=$5
shift 5
build=${out%/*}
mkdir -p "$build/bin" || exit 1

say() {
    echo "build_program: $*" >&2
}

# run COMMAND…: its output goes to a log; of a failure the first error is shown.
run() {
    "$@" >"$build/build.log" 2>&1 || fail
}

fail() {
    errors='error *: |error #|Error at |: Error [0-9]|undefined reference|cannot find -l|fatal|: not found|No such file or directory|\*\*\* '
    line=$(grep -n -m 1 -E "$errors" "$build/build.log" | cut -d: -f1)
    tail -n "+${line:-1}" "$build/build.log" | head -n 8 | cut -c 1-500 >&2
    say "the build failed"
    exit 4
}

# Build files call `nvcc` by its name.
{
    echo '#!/bin/sh'
    printf 'exec'
    for word in "$@"; do
        printf " '%s'" "$(printf '%s' "$word" | sed "s/'/'\\\\''/g")"
    done
    echo ' "$@"'
} >"$build/bin/nvcc" || exit 1
chmod +x "$build/bin/nvcc"
if [ $# -eq 1 ] && [ -x "$1" ]; then
    toolkit=$(readlink -f "$1")
    toolkit=${toolkit%/bin/nvcc}
    PATH="$toolkit/bin:$PATH"
    # CMake finds the toolkit's libraries beside its compiler.
    CUDACXX="$toolkit/bin/nvcc"
    [ -x "$CUDACXX" ] || CUDACXX=$1
    : "${CUDA_HOME:=$toolkit}" "${CUDA_PATH:=$toolkit}"
    export CUDACXX CUDA_HOME CUDA_PATH
else
    toolkit=$build
    PATH="$build/bin:$PATH"
    CUDACXX="$build/bin/nvcc"
    export CUDACXX
fi
NVCC_PREPEND_FLAGS="-lineinfo ${NVCC_PREPEND_FLAGS:-}"
export PATH NVCC_PREPEND_FLAGS

# Makefiles often name the usual place of the toolkit.
set --
if [ ! -x /usr/local/cuda/bin/nvcc ]; then
    set -- "CUDA_PATH=$toolkit" "CUDA_HOME=$toolkit"
fi

jobs=$(nproc 2>/dev/null || echo 4)
[ "$jobs" -le 16 ] || jobs=16

if [ "$system" = cmake ] && ! command -v cmake >/dev/null; then
    if [ -e Makefile ] || [ -e makefile ]; then
        system=make
    else
        say "the host has no cmake"
        exit 3
    fi
fi
if [ "$system" = make ] && ! command -v make >/dev/null; then
    say "the host has no make"
    exit 3
fi

failed=
: >"$build/.before"
# Files made within the clock's step of this one would not be newer.
sleep 0.05 2>/dev/null || sleep 1
if [ "$system" = cmake ]; then
    place=$build/cmake
    if ! cmake -S . -B "$place" -DCMAKE_BUILD_TYPE=Release \
        ${arch:+"-DCMAKE_CUDA_ARCHITECTURES=$arch"} >"$build/build.log" 2>&1; then
        # A part of a larger project often has a Makefile that builds it alone.
        [ -e Makefile ] || [ -e makefile ] || [ -e GNUmakefile ] || fail
        say "CMake cannot set the folder up alone: make builds it"
        system=make
    fi
fi
if [ "$system" = cmake ]; then
    run cmake --build "$place" --parallel "$jobs"
else
    place=.
    if [ -n "$target" ] && make -n "$target" >/dev/null 2>&1; then
        run make -j "$jobs" "$@" "$target"
    else
        # One of several programs may need what the host lacks.
        make -k -j "$jobs" "$@" >"$build/build.log" 2>&1 || failed=yes
    fi
fi

# The programs that are new: executables for this machine, but for libraries and what CMake tries.
find "$place" . -type f -perm -u+x -newer "$build/.before" \
    ! -path '*/CMakeFiles/*' ! -path '*/_deps/*' ! -name '*.so' ! -name '*.so.*' ! -name '*.o' |
    sort -u | while IFS= read -r file; do
    [ "$(head -c 4 "$file" | tail -c 3)" = ELF ] && printf '%s\n' "$file"
done >"$build/.programs"

choose() {
    while IFS= read -r file; do
        if [ "${file##*/}" = "$1" ]; then
            printf '%s\n' "$file"
            break
        fi
    done <"$build/.programs"
}

names=$(sed 's|.*/||' "$build/.programs" | sort -u | head -n 20 | tr '\n' ' ')
names=${names% }
count=$(wc -l <"$build/.programs")
[ -z "$failed" ] || [ "$count" -gt 1 ] || fail
if [ -n "$target" ]; then
    program=$(choose "${target##*/}")
    if [ -z "$program" ]; then
        say "the build makes no program '$target': ${names:-none}"
        exit 5
    fi
elif [ "$count" -eq 0 ]; then
    say "the build makes no program"
    exit 5
elif [ "$count" -eq 1 ]; then
    program=$(cat "$build/.programs")
else
    program=$(choose "$name")
    [ -n "$program" ] || program=$(choose main)
    [ -n "$program" ] || program=$(head -n 1 "$build/.programs")
    say "runs '${program##*/}' of the programs that it makes: $names; --target NAME chooses another"
fi
folder=$(cd "${program%/*}" && pwd -P) || exit 1
ln -sf "$folder/${program##*/}" "$out"
