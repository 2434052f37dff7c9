# Two hosts in namespaces of their own with a veth between them: 198.18.0.1 in $a, 198.18.0.2 in $b. Read by
# scripts that measure; $name tells their namespaces apart. Everything goes at the end: $work, a directory, and the
# processes in $running.
work=$(mktemp -d)
a=mpip-$name-a-$$
b=mpip-$name-b-$$
running=

stop() {
    for process in $running; do kill "$process" 2>/dev/null || :; done
    for process in $running; do wait "$process" 2>/dev/null || :; done
    running=
}
clean() {
    stop
    ip netns del "$a" 2>/dev/null || :
    ip netns del "$b" 2>/dev/null || :
    rm -r "$work"
}
trap clean EXIT
trap 'exit 130' INT TERM

ip netns add "$a"
ip netns add "$b"
ip link add v0 netns "$a" type veth peer name v0 netns "$b"
for host in "$a" "$b"; do
    ip -n "$host" link set lo up
    ip -n "$host" link set v0 up
done
ip -n "$a" address add 198.18.0.1/24 dev v0
ip -n "$b" address add 198.18.0.2/24 dev v0
