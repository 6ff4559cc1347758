# Disassembles cubins beside this file, as many at once as there are cores.
# $1: nvdisasm. $2: one line of `calls`, by number: its words are all that nvdisasm is given.
# Without $2 all of them, with everything they said joined in `listings`.
if [ $# -gt 1 ]; then
    tool=$1 n=$2
    # Flags, numbers and names of our own: nothing in them needs quotes.
    set -- $(sed -n "${n}p" calls)
    # A damaged cubin can hold it up for ever.
    ulimit -t 600 2>/dev/null
    "$tool" "$@" >"$n.out" 2>"$n.err" </dev/null
    echo $? >"$n.exit"
    # A line for each that is done: the laptop counts them.
    echo "$n"
    exit 0
fi
cores=$(getconf _NPROCESSORS_ONLN 2>/dev/null || nproc 2>/dev/null || echo 1)
sed -n = calls | xargs -n 1 -P "$cores" sh nvdisasm.sh "$1"
for n in $(sed -n = calls); do
    # An xargs without -P has done nothing.
    [ -f "$n.exit" ] || sh nvdisasm.sh "$1" "$n"
    echo "$n $(cat "$n.exit") $(wc -c <"$n.out") $(wc -c <"$n.err")"
    cat "$n.out" "$n.err"
    rm "$n.out" "$n.err"
done >listings
