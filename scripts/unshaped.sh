#!/bin/sh
# One TCP connection between two hosts over a link without a limit, in Gbit/s: plain, through mpip by UDP,
# and through mpip by TCP segments. Needs root; the hosts are network namespaces of its own.
#
# usage: unshaped.sh [SECONDS] [DIRECTORY OF THE BINARIES]
set -eu
seconds=${1:-5}
bin=${2:-target/release}
name=un
. "$(dirname "$0")/two-hosts.sh"

# daemon HOST NUMBER PEER'S NUMBER ENCAPSULATION
daemon() {
    cat > "$work/$2.toml" <<CONFIGURATION
[node]
private_key_file = "$work/$2.key"
control_socket = "$work/$2.sock"
[interface]
name = "mpip0"
addresses = ["198.19.7.$2/24"]
[[path]]
interface = "v0"
[[peer]]
name = "host$3"
public_key = "$("$bin/mpip" pubkey < "$work/$3.key")"
endpoints = ["198.18.0.$3:6182"]
allowed_prefixes = ["198.19.7.$3/32"]
encapsulation = "$4"
CONFIGURATION
    ip netns exec "$1" "$bin/mpipd" --config "$work/$2.toml" 2> "$work/$2.log" &
    running="$running $!"
}

# measure TITLE ADDRESS
measure() {
    ip netns exec "$b" iperf3 --server --one-off > /dev/null &
    running="$running $!"
    tries=0
    until ip netns exec "$a" ping -c 1 -W 1 "$2" > /dev/null 2>&1; do
        tries=$((tries + 1))
        [ $tries -lt 50 ] || { echo "no answer from $2" >&2; cat "$work"/*.log >&2; exit 1; }
        sleep 0.1
    done
    sleep 0.5
    rate=$(ip netns exec "$a" iperf3 --client "$2" --time "$seconds" --congestion cubic --format g |
        awk '/receiver/ { print $7 }')
    echo "$1: $rate Gbit/s"
    stop
}

for host in 1 2; do
    (umask 077; "$bin/mpip" genkey > "$work/$host.key")
done
measure "plain TCP" 198.18.0.2
for encapsulation in udp tcp; do
    daemon "$a" 1 2 $encapsulation
    daemon "$b" 2 1 $encapsulation
    measure "mpip, $encapsulation" 198.19.7.2
done
