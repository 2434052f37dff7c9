#!/bin/sh
# What the sans-IO crates may depend on: their direct dependencies are exactly those below, and
# nothing that reaches the operating system stands anywhere among the indirect ones.
set -eu
cd "$(dirname "$0")/.."

allowed() {
    case $1 in
    types) echo "siphasher" ;;
    wire) echo "" ;;
    crypto) echo "aws-lc-rs base64 blake2 chacha20 rand_core snow zeroize" ;;
    transport) echo "mpip-crypto mpip-types mpip-wire" ;;
    link) echo "rand_chacha rand_core serde" ;;
    segments) echo "mpip-types siphasher" ;;
    core) echo "log mpip-crypto mpip-transport mpip-types mpip-wire rand_chacha rand_core" ;;
    sim) echo "bytes mpip-core mpip-crypto mpip-link mpip-segments mpip-wire quinn-proto rand_chacha smoltcp" ;;
    esac
}
# Has a default seed from the operating system; the simulator gives it one (sim/src/quic.rs).
seeded=quinn-proto
forbidden='^(async-std|getrandom|libc|mio|nix|polling|rand|rustix|socket2|tokio)$'

status=0
for crate in types wire crypto transport link segments core sim; do
    tree() { cargo tree --locked -q -p "mpip-$crate" -e normal --prefix none "$@" | awk '{print $1}'; }
    found=$(tree --depth 1 | tail -n +2 | sort -u | tr '\n' ' ' | sed 's/ $//')
    if [ "$found" != "$(allowed "$crate")" ]; then
        echo "mpip-$crate depends on: $found" >&2
        echo "            expected: $(allowed "$crate")" >&2
        status=1
    fi
    if tree $([ $crate = sim ] && echo "--prune $seeded") | grep -E "$forbidden" >&2; then
        echo "mpip-$crate reaches the operating system through the crates above" >&2
        status=1
    fi
done
exit $status
