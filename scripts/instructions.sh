#!/bin/sh
# Instructions that mpip's own crates need for a packet, out of one engine and into the other: counted by callgrind,
# and compared with bench/benches/instructions.txt. What is above by more than 3 % fails.
#
# Counted are the functions of mpip-core, -transport, -wire and -types, with what the compiler put into them. The AEAD
# and the C library are not: what they need depends on the processor that valgrind shows.
#
# usage: instructions.sh [--write]
set -eu
budget=bench/benches/instructions.txt
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
trap 'exit 130' INT TERM

program=$(cargo bench --locked -p mpip-bench --bench instructions --no-run 2>&1 |
    sed -n 's|.*Executable.*(\(.*\))$|\1|p')
[ -x "$program" ] || { echo "expected cargo to build benches/instructions" >&2; exit 1; }

# count KIND ROUNDS: instructions, and packets.
count() {
    valgrind --tool=callgrind --callgrind-out-file="$work/out" "$program" "$1" "$2" >"$work/packets" 2>"$work/log" ||
        { cat "$work/log" >&2; exit 1; }
    awk '
        /^fn=/ {
            id = $0; sub(/^fn=/, "", id); sub(/ .*/, "", id)
            if (index($0, " ")) { name = $0; sub(/^[^ ]* /, "", name); names[id] = name }
            current = id
            next
        }
        /^cfn=/ && index($0, " ") {
            id = $0; sub(/^cfn=/, "", id); sub(/ .*/, "", id)
            name = $0; sub(/^[^ ]* /, "", name); names[id] = name
        }
        /^calls=/ { inclusive = 1; next }
        /^[-+*0-9]/ { if (!inclusive) sum[current] += $2; inclusive = 0 }
        END {
            for (id in sum) if (names[id] ~ /mpip_(core|transport|wire|types)/) all += sum[id]
            printf "%.0f ", all
        }' "$work/out"
    cat "$work/packets"
}

failed=
for kind in bulk bulk-8-paths small first; do
    rounds=500
    # A round over eight paths has eight times as many packets.
    [ $kind != bulk-8-paths ] || rounds=60
    few=$(count $kind $rounds)
    many=$(count $kind $((rounds * 3)))
    # shellcheck disable=SC2086
    found=$(echo $few $many | awk '{ printf "%.0f", ($3 - $1) / ($4 - $2) }')
    if [ "${1:-}" = --write ]; then
        echo "$kind $found" >>"$work/budget"
        echo "$kind: $found instructions per packet"
        continue
    fi
    allowed=$(awk -v kind=$kind '$1 == kind { print $2 }' "$budget")
    [ -n "$allowed" ] || { echo "$budget: expected a line \`$kind NUMBER\`" >&2; exit 1; }
    echo "$kind: $found instructions per packet, budget $allowed"
    if [ "$found" -gt $((allowed * 103 / 100)) ]; then
        echo "$kind: above the budget by more than 3 %; callgrind_annotate shows where" >&2
        failed=1
    elif [ "$found" -lt $((allowed * 97 / 100)) ]; then
        echo "$kind: the budget can be lowered: make instructions-budget"
    fi
done
[ ! -f "$work/budget" ] || mv "$work/budget" "$budget"
[ -z "$failed" ]
