#!/bin/sh
# Does the Debian package do what docs/install.md says? Two hosts, Debian as mmdebstrap makes it, are booted with systemd
# in namespaces of their own (systemd-nspawn, a private network each), with two links between them: installed, joined,
# upgraded while a transfer runs, removed and purged. Needs root. `make deb-test` runs it.
#
# usage: deb-test.sh [PACKAGE]
set -eu
package=${1:-$(ls -t target/debian/mpip_*.deb | head -1)}
cache=target/deb-test
base=$cache/root.tar
work=$(mktemp -d)
booted=
failed=0
finished=0

clean() {
    if [ "$finished" = 0 ]; then
        for process in ${gateway:-} ${laptop:-}; do
            inside "$process" journalctl -u mpip@mpip0 -n 30 --no-pager -o short-precise >&2 || :
        done
    fi
    for process in $booted; do kill "$process" 2>/dev/null || :; done
    for process in $booted; do wait "$process" 2>/dev/null || :; done
    rm -rf "$work"
}
trap clean EXIT
trap 'exit 130' INT TERM

step() { echo "== $*"; }
# check WORDS COMMAND...
check() {
    words=$1
    shift
    if "$@"; then echo "ok: $words"; else echo "WRONG: $words"; failed=1; fi
}

if [ ! -f "$base" ]; then
    step "making a Debian, kept as $base (some minutes)"
    mkdir -p "$cache"
    # The programs of the second half come with it, switched off.
    mmdebstrap --quiet --variant=minbase --include=systemd-sysv,dbus,iproute2,iputils-ping,nftables,network-manager \
        --customize-hook='systemctl --root="$1" disable -q NetworkManager NetworkManager-wait-online' \
        "$(. /etc/os-release && echo "$VERSION_CODENAME")" "$base.new"
    mv "$base.new" "$base"
fi

# boot NAME: sets leader to the process that is the host's first.
boot() {
    mkdir "$work/$1"
    tar -C "$work/$1" -xf "$base"
    echo "$1" >"$work/$1/etc/hostname"
    cp "$package" "$work/$1/root/mpip.deb"
    systemd-nspawn --quiet --register=no --keep-unit --private-network --bind="$work/tun:/dev/net/tun" \
        --console=pipe --machine="$1" -D "$work/$1" -b </dev/null >"$work/$1.console" 2>&1 &
    nspawn=$!
    booted="$booted $nspawn"
    for _ in $(seq 600); do
        sleep 0.2
        # Its first child is another one, which ends soon.
        leader=$(pgrep -P "$nspawn" | tail -1)
        [ -n "$leader" ] || continue
        state=$(inside "$leader" systemctl is-system-running 2>/dev/null || :)
        case $state in running | degraded) return ;; esac
    done
    echo "$1 does not boot: $state" >&2
    cat "$work/$1.console" >&2
    exit 1
}
# inside PROCESS COMMAND...
inside() {
    process=$1
    shift
    nsenter -t "$process" -m -p -u -i -n -r -w env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DEBIAN_FRONTEND=noninteractive LC_ALL=C "$@"
}
gateway() { inside "$gateway" "$@"; }
laptop() { inside "$laptop" "$@"; }

pings() { laptop ping -c 1 -W 1 -q "$1" >/dev/null; }
quietly() { "$@" >/dev/null 2>&1; }

# How many paths of this host work.
paths() {
    inside "$1" mpip status --json 2>/dev/null | python3 -c 'import json, sys
print(sum(path["state"] == "active" for peer in json.load(sys.stdin)["peers"] for path in peer["paths"]))' 2>/dev/null || echo 0
}
# wait_for COMMAND...: until it succeeds, 30 s at most.
wait_for() {
    for _ in $(seq 150); do
        "$@" && return
        sleep 0.2
    done
    return 1
}
both_paths() { [ "$(paths "$1")" = 2 ]; }
is() { [ "$1" = "$2" ]; }

# What a host has that a package may change: routes, rules, packet filter, kernel parameters, users, files.
state() {
    inside "$1" sh -c '
        for family in -4 -6; do ip $family rule; ip $family route show table all | sed "s/expires [0-9]*sec//"; done
        nft list ruleset
        ip -br link | cut -d" " -f1
        find /proc/sys/net -type f -perm /400 ! -path "*nf_*" ! -path "*/mpip0/*" | sort |
            while read -r file; do echo "$file $(cat "$file" 2>/dev/null)"; done
        cat /etc/passwd /etc/group
        find /etc /usr /var/lib /run/mpip /run/systemd/system -xdev 2>/dev/null |
            grep -vE "^/var/lib/(dpkg|systemd|apt)|^/etc/(passwd|group|shadow|gshadow|subuid|subgid)-?$|^/etc/\.pwd.lock$|^/usr/lib/(systemd|sysusers.d|tmpfiles.d)$" | sort'
}

mknod -m 666 "$work/tun" c 10 200
step "booting two hosts"
boot gateway
gateway=$leader
boot laptop
laptop=$leader
for link in 1 2; do
    ip link add "v$link" netns "$gateway" type veth peer name "v$link" netns "$laptop"
    for end in 1 2; do
        [ $end = 1 ] && process=$gateway || process=$laptop
        nsenter -t "$process" -n sh -c "ip link set v$link up; ip address add 198.18.$link.$end/24 dev v$link"
    done
done
for link in 1 2; do wait_for pings "198.18.$link.1"; done
sleep 3
state "$gateway" >"$work/gateway.before"
state "$laptop" >"$work/laptop.before"

step "from a fresh Debian with the package to a working bond"
start=$(date +%s%N)
gateway dpkg --install /root/mpip.deb >"$work/install" 2>&1 || cat "$work/install"
laptop dpkg --install /root/mpip.deb >"$work/install" 2>&1 || cat "$work/install"
installed=$(date +%s%N)
gateway mpip init --gateway >/dev/null
token=$(gateway mpip invite laptop --no-qr | grep -o 'mpip1[^ ]*' | head -1)
laptop mpip join "$token"
inner=$(gateway ip -4 -o address show dev mpip0 | sed 's/.*inet \([0-9.]*\).*/\1/')
check "a ping to $inner arrives" wait_for pings "$inner"
end=$(date +%s%N)
echo "installed in $(((installed - start) / 1000000)) ms, bonded in $(((end - installed) / 1000000)) ms more"
check "that took less than 60 s" [ $(((end - start) / 1000000000)) -lt 60 ]
check "both links carry" wait_for both_paths "$laptop"
check "it starts with the host" gateway systemctl -q is-enabled mpip@mpip0
main=$(gateway systemctl show -P MainPID mpip@mpip0)
user=$(gateway stat -c %U "/proc/$main")
check "the daemon runs as the user mpip" is "$user" mpip
# CAP_NET_ADMIN is number 12, CAP_NET_RAW 13 (capabilities(7)).
check "it has kept two capabilities" gateway grep -qE '^CapPrm:.0*3000$' "/proc/$main/status"
check "the daemon cannot replace its configuration" \
    is "$(gateway stat -c '%U %G %a' /etc/mpip /etc/mpip/mpip0.key | tr '\n' ' ')" "root mpip 3770 root mpip 640 "
check "the host forwards while it runs" is "$(gateway cat /proc/sys/net/ipv4/ip_forward)" 1
check "its table of nftables is there" quietly gateway nft list table inet mpip_mpip0
check "mpip check, doctor: nothing wrong" gateway sh -c 'mpip check /etc/mpip/mpip0.toml >/dev/null && mpip doctor'
check "systemctl reload applies the file" gateway systemctl reload mpip@mpip0
gateway useradd -m -G mpip alice
check "a member of the group mpip sees the status" \
    quietly gateway setpriv --reuid alice --regid alice --init-groups mpip status
gateway userdel -r alice 2>/dev/null
gateway systemctl start mpip-web@mpip0
check "the page's program serves metrics" wait_for quietly nsenter -t "$gateway" -n python3 -c 'import urllib.request
text = urllib.request.urlopen("http://127.0.0.1:6183/metrics", timeout=5).read().decode()
assert "mpip_up 1" in text, text'

step "killed, it starts again"
gateway systemctl kill -s KILL --kill-who=main mpip@mpip0
check "both links carry again" wait_for both_paths "$laptop"
check "a ping arrives" wait_for pings "$inner"

# The package with a later version.
dpkg-deb --raw-extract "$package" "$work/later"
sed -i 's/^Version: .*/&+later/' "$work/later/DEBIAN/control"
dpkg-deb --root-owner-group --build "$work/later" "$work/later.deb" >/dev/null
# upgrade HOST PROCESS: while a connection carries a number each millisecond, from the gateway.
upgrade() {
    step "upgrading the $1 while a transfer runs"
    nsenter -t "$gateway" -n python3 scripts/stream.py serve "$inner" &
    server=$!
    nsenter -t "$laptop" -n python3 scripts/stream.py read "$inner" 12 >"$work/stream" &
    reader=$!
    sleep 4
    cp "$work/later.deb" "$work/$1/root/later.deb"
    before=$(inside "$2" systemctl show -P MainPID mpip@mpip0)
    inside "$2" dpkg --install /root/later.deb >"$work/install" 2>&1 || cat "$work/install"
    check "another daemon runs" [ "$before" != "$(inside "$2" systemctl show -P MainPID mpip@mpip0)" ]
    check "the connection survives" wait "$reader"
    kill "$server" 2>/dev/null || :
    cat "$work/stream"
    check "the gap is below 1 s" [ "$(sed -n 's/longest gap \([0-9]*\) ms.*/\1/p' "$work/stream")" -lt 1000 ]
}
upgrade gateway "$gateway"
upgrade laptop "$laptop"
check "both links carry" wait_for both_paths "$laptop"

step "beside systemd-networkd and NetworkManager"
# What mpip has on the laptop, with a rule as host mode sets it.
own() { laptop sh -c 'ip rule; ip route show proto 109; ip -br address show mpip0' | grep -v expires; }
laptop ip rule add pref 61 not fwmark 6182 lookup 6182 protocol 109
own >"$work/own"
unchanged() { own | cmp -s - "$work/own"; }
for link in 1 2; do
    # It keeps the address: to set one that is there fails at times.
    printf '[Match]\nName=v%s\n[Network]\nKeepConfiguration=yes\nIPv6AcceptRA=no\n' $link \
        >"$work/laptop/etc/systemd/network/v$link.network"
done
mkdir -p "$work/laptop/etc/systemd/networkd.conf.d"
cp contrib/networkd.conf "$work/laptop/etc/systemd/networkd.conf.d/mpip.conf"
laptop systemctl start systemd-networkd
managed() { laptop networkctl --no-legend list | grep -qE "v1 .*(configuring|configured)"; }
check "networkd has the links" wait_for managed
[ $failed = 0 ] || laptop journalctl -u systemd-networkd -n 20 --no-pager -o cat
laptop systemctl restart systemd-networkd
wait_for managed || :
check "networkd leaves mpip0 alone" laptop sh -c 'networkctl --no-legend list | grep -q "mpip0 .*unmanaged"'
check "addresses, routes and rules of mpip are as they were" unchanged
check "both links carry" wait_for both_paths "$laptop"
laptop systemctl stop systemd-networkd.socket systemd-networkd
laptop systemctl start NetworkManager
ready() { laptop nmcli -t -f DEVICE,STATE device | grep -q '^mpip0:'; }
check "NetworkManager sees the device" wait_for ready
sleep 3
check "NetworkManager leaves mpip0 alone" laptop sh -c 'nmcli -t -f DEVICE,STATE device | grep -qx mpip0:unmanaged'
check "addresses, routes and rules of mpip are as they were" unchanged
check "both links carry" wait_for both_paths "$laptop"
laptop systemctl stop NetworkManager
laptop ip rule del pref 61
rm "$work/laptop/etc/systemd/network/"v?.network "$work/laptop/etc/systemd/networkd.conf.d/mpip.conf"
rmdir "$work/laptop/etc/systemd/networkd.conf.d"

step "removed and purged"
for host in gateway laptop; do
    [ $host = gateway ] && process=$gateway || process=$laptop
    inside "$process" dpkg --remove mpip >"$work/install" 2>&1 || cat "$work/install"
    check "removed from the $host, nothing of it runs" [ -z "$(inside "$process" sh -c 'grep -l "^mpip" /proc/[0-9]*/comm 2>/dev/null' || :)" ]
    check "the configuration is kept" inside "$process" test -f /etc/mpip/mpip0.toml
    inside "$process" dpkg --purge mpip >"$work/install" 2>&1 || cat "$work/install"
    state "$process" >"$work/$host.after"
    # These networkd and NetworkManager have changed on the laptop; on the gateway all is compared.
    [ $host = gateway ] || sed -i -E '/\/v[12]\/(promote_secondaries|accept_ra) /d; /^\/var\/lib\/NetworkManager\//d' \
        "$work/$host.before" "$work/$host.after"
    check "purged, the $host is as it was" diff "$work/$host.before" "$work/$host.after"
done
if [ $failed = 1 ]; then
    echo "something is wrong, see above" >&2
    exit 1
fi
finished=1
echo "all as it is to be"
