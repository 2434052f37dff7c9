#!/bin/sh
# Installs what is missing on a Debian machine: commands that the tests, the demo or the lab call.
#   scripts/setup.sh COMMAND:PACKAGE...
set -eu
missing=
for pair in "$@"; do
    command -v "${pair%%:*}" >/dev/null 2>&1 || missing="$missing ${pair#*:}"
done
[ -n "$missing" ] || exit 0
if ! command -v apt-get >/dev/null 2>&1; then
    echo "expected these commands' packages to be installed, found none of:$missing" >&2
    exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
    echo "installing$missing needs root: run as root, or install them by hand" >&2
    exit 1
fi
echo "installing:$missing"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
# shellcheck disable=SC2086
apt-get install -qq -y --no-install-recommends $missing >/dev/null
