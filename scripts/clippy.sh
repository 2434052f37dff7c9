#!/usr/bin/env bash
# Compiles a crate of the workspace: its tests with clippy, which then needs no build of its own.
# They contain everything else of the crate, and what is measured or runs long stays as rustc
# makes it. For cargo's RUSTC_WORKSPACE_WRAPPER, which gives the compiler and its arguments.
# sh would lose variables like CARGO_BIN_EXE_mpip-lab, whose names are none in a shell.
set -eu
rustc=$1
shift
case " $* " in
*" --test "*) exec clippy-driver "$rustc" "$@" -D warnings ;;
*) exec "$rustc" "$@" -D warnings ;;
esac
