#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# bench/gpu/killed.cpp on the doubles of CUDA and NCCL: each run ends soon, with its status and its message.
# usage: killed.sh PROGRAM
set -euo pipefail
program=$1
expect() {  # STATUS MESSAGE COMMAND...
  local status=0 out
  out=$(timeout 60 "${@:3}" 2>&1) || status=$?
  if [ "$status" -ne "$1" ] || ! grep -q "$2" <<<"$out"; then
    echo "${*:3}: status $status instead of $1, or no '$2' in: $out"
    exit 1
  fi
}
expect 1 "planted: rank 1 gives up" "$program" error
expect 3 "for the device or the other ranks" "$program" silence
expect 143 "SIGTERM: ended after step" bash -c '
  "$1" signal > >(tee "$2") & own=$!
  until grep -q "steps are graphs" "$2" 2>/dev/null; do kill -0 $own || exit 1; sleep 0.1; done
  kill -TERM $own
  wait $own' test "$program" "$(mktemp)"
