#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs of killed.cpp that must end by themselves, soon, with their status and a message.
# usage: killed.sh PROGRAM error|silence|signal...
set -euo pipefail
program=$1
declare -A statuses=([error]=1 [silence]=3 [signal]=143)
declare -A messages=([error]="planted: rank [0-9]* gives up" [silence]="the device or the other ranks" [signal]="SIGTERM: ended after step")
log=$(mktemp)
trap 'rm -f "$log"' EXIT
for how in "${@:2}"; do
  code=0
  timeout -k 5 60 "$program" "$how" >"$log" 2>&1 &
  run=$!
  if [ "$how" = signal ]; then
    until grep -qE "steps are graphs|SKIPPED" "$log" || ! kill -0 $run 2>/dev/null; do sleep 0.1; done
    kill -TERM $run 2>/dev/null || true # timeout passes it on
  fi
  wait $run || code=$?
  cat "$log"
  if ! grep -q SKIPPED "$log" && { [ "$code" -ne "${statuses[$how]}" ] || ! grep -q "${messages[$how]}" "$log"; }; then
    echo "$program $how: status $code instead of ${statuses[$how]} (124, 137: it hung), or no '${messages[$how]}'"
    exit 1
  fi
done
