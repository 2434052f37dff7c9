#!/bin/sh
# Where the daemons' time goes in one TCP stream over a path without a limit, as a flame graph: samples of both
# mpipd. Needs root, perf, target/release/mpip-lab and target/tools/bin/inferno-*.
#
# usage: flame.sh FILE.svg
set -eu
out=$1
build=target/flame
tools=target/tools/bin
samples=$(mktemp)
trap 'rm -f "$samples" "$samples.svg"' EXIT
trap 'exit 130' INT TERM

# Stacks are walked by frame pointers, which the ordinary build leaves out.
RUSTFLAGS='-C force-frame-pointers=yes' cargo build --locked --quiet --release --target-dir $build -p mpip-daemon
cp target/release/mpip-lab target/release/mpip $build/release/
# The lab does not repeat what has results.
rm -rf $build/results
perf record -q -F 997 -g -o "$samples" $build/release/mpip-lab run floor --systems mpip --links netem --allow-busy \
    --repetitions 1 --seconds 5 --out $build/results
perf script --comms mpipd -i "$samples" 2>/dev/null >$build/stacks
found=$(grep -c '^mpipd' $build/stacks || :)
if [ "$found" -lt 1000 ]; then
    echo "expected at least 1000 samples of mpipd in 5 s, perf took $found" >&2
    exit 1
fi
$tools/inferno-collapse-perf <$build/stacks 2>/dev/null | $tools/inferno-flamegraph \
    --title 'Both mpipd: one TCP stream, one path without a limit' --countname 'ns' --minwidth 0.4 >"$samples.svg"
mv "$samples.svg" "$out"
chmod 644 "$out"
echo "$out: $found samples"
