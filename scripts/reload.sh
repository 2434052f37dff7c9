#!/bin/sh
# How long a running daemon takes to apply a configuration with PEERS more peers, and with as many less, while a
# packet each 2 ms passes between it and a peer that stays. Needs root; the hosts are network namespaces of its own.
#
# usage: reload.sh [PEERS] [DIRECTORY OF THE BINARIES]
set -eu
peers=${1:-1000}
bin=${2:-target/release}
name=re
. "$(dirname "$0")/two-hosts.sh"

# node NUMBER PEER'S NUMBER
node() {
    cat <<CONFIGURATION
[node]
private_key_file = "$work/$1.key"
control_socket = "$work/$1.sock"
[interface]
addresses = ["198.19.0.$1/32"]
[[peer]]
name = "host$2"
public_key = "$("$bin/mpip" pubkey < "$work/$2.key")"
endpoints = ["198.18.0.$2:6182"]
allowed_prefixes = ["198.19.0.$2/32"]
CONFIGURATION
}

for number in 1 2; do "$bin/mpip" genkey --out "$work/$number.key" >/dev/null; done
node 1 2 > "$work/1.toml"
node 2 1 > "$work/2.toml"
cp "$work/2.toml" "$work/few.toml"
{
    cat "$work/few.toml"
    number=0
    while [ "$number" -lt "$peers" ]; do
        number=$((number + 1))
        key=$("$bin/mpip" genkey | "$bin/mpip" pubkey)
        echo "[[peer]]"
        echo "name = \"other$number\""
        echo "public_key = \"$key\""
        echo "allowed_prefixes = [\"198.19.$((1 + number / 250)).$((number % 250))/32\"]"
    done
} > "$work/many.toml"
ip netns exec "$a" "$bin/mpipd" --config "$work/1.toml" 2> "$work/1.log" &
running="$running $!"
ip netns exec "$b" "$bin/mpipd" --config "$work/2.toml" 2> "$work/2.log" &
running="$running $!"
for _ in $(seq 100); do
    ip netns exec "$a" ping -c 1 -W 1 198.19.0.2 >/dev/null 2>&1 && break
done

ip netns exec "$a" ping -i 0.002 -q -w 60 198.19.0.2 > "$work/ping" &
ping=$!
running="$running $ping"
sleep 1
echo "repetition  change           whole command ms  applied in ms"
for repetition in 1 2 3 4 5; do
    for change in many few; do
        cp "$work/$change.toml" "$work/2.toml"
        start=$(date +%s%N)
        "$bin/mpip" --socket "$work/2.sock" reload > "$work/said"
        end=$(date +%s%N)
        cp "$work/few.toml" "$work/2.toml"
        what="$peers peers more"
        [ "$change" = many ] || what="$peers peers less"
        echo "$repetition  $what  $(((end - start) / 1000000))  $(sed -n 's/.*applied in \([0-9.]*\) ms.*/\1/p' "$work/said")"
        sleep 0.2
    done
done
kill -INT "$ping"
wait "$ping" || :
grep received "$work/ping"
