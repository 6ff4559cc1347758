#!/bin/sh
# mounted.sh LINK TARGET... -- PROGRAM ARGS...: links paths of the host, such as `/data`, to folders
# of the job while PROGRAM runs. An existing file at such a path is an error and stays unchanged; a
# link that a killed job left is replaced.
set -u
job="$RGPU_JOB_FOLDER/.."
made=
undo() {
    printf '%s' "$made" | while IFS= read -r link; do
        rm -f -- "$link"
    done
}
trap undo EXIT
trap 'exit 143' TERM
trap 'exit 130' INT
trap 'exit 129' HUP
echo $$ >"$job/mounted.pid"
while [ "$1" != -- ]; do
    link=$1
    target=$2
    shift 2
    if [ -L "$link" ]; then
        old=$(readlink -- "$link")
        owner=${old%/work/here/*}
        case $old in
        */jobs/*/work/here/*)
            if kill -0 "$(cat -- "$owner/mounted.pid" 2>/dev/null || echo none)" 2>/dev/null; then
                echo "rgpu exec --mount: another job has \`$link\` now" >&2
                exit 125
            fi
            rm -f -- "$link"
            ;;
        esac
    fi
    if [ -e "$link" ] || [ -L "$link" ]; then
        echo "rgpu exec --mount: there is a \`$link\` on the host already; mount it elsewhere, or leave it out" >&2
        exit 125
    fi
    if ! mkdir -p -- "${link%/*}/" || ! ln -s -- "$target" "$link"; then
        echo "rgpu exec --mount: \`$link\` cannot be made on the host; a place without the \`/\` lies in the working folder" >&2
        exit 125
    fi
    made="$made$link
"
done
shift
"$@"
status=$?
exit $status
