#!/bin/sh
# host_tool.sh FOLDER URL SHA256 PROGRAM: fetches an archive of NVIDIA, checks it, and unpacks it as FOLDER of the
# user's tools. PROGRAM is the tool in it, a path that may hold `*`. The last line printed is its path. What was
# there before is replaced only by a tool that has started. It needs curl, wget or python3, and xz or python3.
set -eu
tools=${HOME:?}/.local/share/rgpu/tools
fail() { echo "host_tool: $*" >&2; exit 3; }
has() { command -v "$1" >/dev/null 2>&1; }
started() {
    for program in "$1"/$2; do
        [ -x "$program" ] && "$program" --version >/dev/null && return
    done
    return 1
}

if started "$tools/$1" "$4" 2>/dev/null; then echo "$program"; exit; fi
mkdir -p "$tools"
new=$(mktemp -d "$tools/.new-XXXXXX")
trap 'rm -rf "$new"' EXIT
trap 'exit 3' HUP INT TERM
echo "fetching $2"
fetch() {
    if has curl; then
        curl -fsSL --retry 3 -o "$2" "$1"
    elif has wget; then
        wget -nv -O "$2" "$1"
    elif has python3; then
        python3 -I -c 'import sys, urllib.request
try:
    urllib.request.urlretrieve(*sys.argv[1:])
except OSError as error:
    sys.exit(str(error))' "$1" "$2"
    else
        fail "curl, wget or python3 is needed to fetch it"
    fi
}
fetch "$2" "$new/archive" || fail "it cannot be fetched"
echo "$3  $new/archive" | sha256sum -c >/dev/null 2>&1 || fail "what came has another sha256 than $3"
mkdir "$new/tree"
if has xz; then
    tar -xJf "$new/archive" -C "$new/tree"
elif has python3; then
    python3 -I -c 'import sys, tarfile; tarfile.open(sys.argv[1], "r:xz").extractall(sys.argv[2])' \
        "$new/archive" "$new/tree"
else
    fail "xz or python3 is needed to unpack it"
fi
# The archive holds one folder.
started "$new"/tree/* "$4" || fail "$4 of the archive does not start on this host"
rm -rf "${tools:?}/$1"
mv "$new"/tree/* "$tools/$1"
started "$tools/$1" "$4"
echo "$program"
