#!/usr/bin/env bash
# Compiles a crate of the workspace for cargo, as its RUSTC_WORKSPACE_WRAPPER: tests with clippy,
# which then needs no build of its own, everything else with rustc. A crate's tests contain all of
# its code, and what clippy compiles is slower, because it switches MIR optimisation off.
# Not for sh: dash drops variables like CARGO_BIN_EXE_mpip-lab, whose names are none in a shell.
set -eu
rustc=$1
shift
case " $* " in
*" --test "*) exec clippy-driver "$rustc" "$@" -D warnings ;;
*) exec "$rustc" "$@" -D warnings ;;
esac
