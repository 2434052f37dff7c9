#!/bin/sh
# Builds and runs all tests, in two rows side by side: those on the kernel, which wait most of the
# time, and what computes: COMMAND, then every other test. What computes has the lowest priority, so
# that a test on the kernel gets a processor when it asks for one. Everything runs also when
# something fails; what failed is named at the end.
#   scripts/test.sh [COMMAND...]
set -u
cd "$(dirname "$0")/.."
cargo=${CARGO:-cargo}
scratch=$(mktemp -d)
row=

stop() {
    # shellcheck disable=SC2046
    [ -z "$row" ] || kill "$row" $(cat "$scratch/waiting.pid") 2>/dev/null
    rm -rf "$scratch"
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Runs a command with the lowest priority and notes whether it fails.
compute() {
    nice -n 19 "$@" || echo "$*" >>"$scratch/failed"
}

# Runs the programs of a list one after the other, each in its crate's directory.
run() {
    list=$1
    shift
    while read -r directory name program; do
        printf '\n     Running %s\n' "$name"
        (cd "$directory" && exec "$@" "$program") </dev/null &
        echo $! >"$list.pid"
        wait $! || echo "$name" >>"$scratch/failed"
    done <"$list"
}

"$cargo" test --locked --workspace --bins --test '*' --no-run \
    --message-format json-render-diagnostics >"$scratch/messages" || exit 1
# Of each program its crate's directory, its source and its file.
sed -n '/"profile":{[^}]*"test":true}/s|.*"manifest_path":"\([^"]*\)/Cargo.toml".*"src_path":"\([^"]*\)".*"executable":"\([^"]*\)".*|\1 \2 \3|p' \
    "$scratch/messages" | sed "s| $PWD/| |" | sort >"$scratch/programs"
kernel='/tests/kernel/main.rs '
grep "$kernel" "$scratch/programs" >"$scratch/waiting"
grep -v "$kernel" "$scratch/programs" >"$scratch/computing"

echo "Tests on the kernel run beside what follows; what they print comes at the end."
run "$scratch/waiting" env >"$scratch/output" 2>&1 &
row=$!
[ $# -eq 0 ] || compute "$@"
run "$scratch/computing" nice -n 19
# Unit tests run for seconds, and optimised they build for minutes. The packages are the same
# everywhere, because other packages mean other features, and what is built would be built again.
compute "$cargo" test --locked --workspace --lib --profile dev --no-fail-fast
compute "$cargo" test --locked --workspace --doc --no-fail-fast
wait "$row"
row=
cat "$scratch/output"

if [ -s "$scratch/failed" ]; then
    printf '\nfailed:\n' >&2
    sed 's/^/    /' "$scratch/failed" >&2
    exit 1
fi
printf '\nAll tests passed.\n'
