#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SIGTERM, SIGINT, SIGHUP and a reader of stdout that ends end a run after a step that is saved, SIGUSR1 saves and goes on, a
# signal that comes a second after the first ends at once; a run that was ended goes on to the bit.
set -euo pipefail
source "$(dirname "$0")/../support/program.sh"

text 3000 text.txt
base=("$program" train --data text.txt --model tiny --seq-len 16 --precision fp32 --threads 1
      --steps 100000 --lr-schedule constant --log-every 1000000 --comm threads:2)

batch=(--batch-size 4)

# start FLAG...: the run, in the background.
start() { start_run "${base[@]}" "${batch[@]}" "$@"; }

for signal in TERM:143 INT:130 HUP:129; do
  echo "== SIG${signal%:*}"
  rm -rf saved
  start --checkpoint-dir saved
  kill -s "${signal%:*}" $run
  kill -s "${signal%:*}" $run 2>/dev/null || true  # counts as the same
  run_ends "${signal#*:}"
  for said in "$out:" "$err:tessera: "; do
    contains "${said%%:*}" "^${said#*:}SIG${signal%:*}: ended after step [0-9]+: saved/step-[0-9]+\$"
  done
  answer=$(grep -c "^tessera: SIG${signal%:*}: saves after this step; once more ends without saving\$" "$err" || true)
  [ "$answer" -eq "$([ "$signal" = HUP:129 ] && echo 0 || echo 1)" ] || fail "answered $answer times"
  [ "$(wc -l <"$err")" -eq $((1 + answer)) ] || fail "more lines on stderr"
  [ ! -e saved/run.lock ] || fail "the lock stays"
  last=$(steps metrics.jsonl | tail -n 1 | cut -d' ' -f1)
  [ "$(cat saved/latest)" = "$(printf 'step-%08d' "$last")" ] || fail "step $last, saved $(cat saved/latest)"
done

echo "== a SIGHUP that was ignored at the start, as under nohup, stays so"
start_run bash -c 'trap "" HUP; exec "$@"' - "${base[@]}" "${batch[@]}"
kill -s HUP $run
before=$(grep -c '"loss"' metrics.jsonl)
for _ in $(seq 300); do [ "$(grep -c '"loss"' metrics.jsonl)" -lt $((before + 5)) ] || break; sleep 0.1; done
kill -s TERM $run
run_ends 143

echo "== nobody reads stdout any more"
rm -rf saved
for kept in "saved/step-:--checkpoint-dir saved" "nothing is saved without --checkpoint-dir:--seed 0"; do
  read -r -a flags <<<"${kept#*:}"
  set +e
  timeout "$limit" "${base[@]/1000000/1}" "${batch[@]}" "${flags[@]}" 2>"$err" | head -n 7 >"$out"
  status=${PIPESTATUS[0]}
  set -e
  [ "$status" -eq 141 ] || fail "status $status"
  contains "$err" "^tessera: SIGPIPE \(nobody reads stdout any more\): ended after step [0-9]+: ${kept%%:*}"
  [ "$(wc -l <"$err")" -eq 1 ] || fail "more than one line on stderr"
done
[ -e saved/latest ] && [ ! -e saved/run.lock ] || fail "$(ls saved)"

echo "== SIGUSR1 saves and goes on; a run without a folder says that nothing was saved"
rm -rf saved
start --checkpoint-dir saved
kill -s USR1 $run
for _ in $(seq 300); do [ ! -e saved/latest ] || break; sleep 0.1; done
[ -e saved/latest ] || fail "nothing was saved"
first=$(cat saved/latest)
kill -s TERM $run
run_ends 143
[ "$(cat saved/latest)" != "$first" ] || fail "did not go on"
[ "$(find saved -name 'step-*' | wc -l)" -eq 2 ] || fail "saved more than it was asked for: $(ls saved)"
start
kill -s TERM $run
run_ends 143
contains "$out" '^SIGTERM: ended after step [0-9]+: nothing is saved without --checkpoint-dir'
contains "$err" '^tessera: SIGTERM: ends after this step; once more ends at once$'

echo "== a signal ends a validation too, which would take minutes"
rm -rf saved
for _ in $(seq 1000); do cat text.txt; done >long.txt
start --data long.txt --validation-fraction 0.9 --validation-windows 0 --validation-every 5 --checkpoint-dir saved
for _ in $(seq 300); do [ "$(grep -c '"loss"' metrics.jsonl)" -lt 5 ] || break; sleep 0.1; done
kill -s TERM $run
run_ends 143
contains "$out" '^SIGTERM: ended after step 5: saved/step-00000005'

echo "== --on-signal stop"
rm -rf saved
start --checkpoint-dir saved --on-signal stop
kill -s TERM $run
run_ends 143
contains "$out" '^SIGTERM: ended after step [0-9]+: not saved'
[ ! -e saved ] || fail "was saved"
expect_error "on-signal never is not known" "${base[@]}" --on-signal never

echo "== one more a second later: at once, with nothing saved"
rm -rf saved
mkfifo stalled
sleep 100 <stalled &  # a reader that never reads: when the FIFO is full, a step never ends
reader=$!
"${base[@]/1000000/1}" "${batch[@]}" --checkpoint-dir saved --metrics stalled >"$out" 2>"$err" &
run=$!
lines=0
for _ in $(seq 100); do
  [ "$lines" -lt 100 ] || [ "$(wc -l <"$out")" -ne "$lines" ] || break
  lines=$(wc -l <"$out")
  sleep 0.4
done
kill -s TERM $run
sleep 1.05
kill -s TERM $run 2>/dev/null || true
run_ends 143
kill $reader
[ -z "$(find saved -name 'step-*')" ] || fail "was saved"

echo "== what was ended goes on to the bit"
rm -rf saved
start --checkpoint-dir saved
kill -s TERM $run
run_ends 143
last=$(cat saved/latest)
last=$((10#${last#step-}))
few=("${base[@]/100000/$((last + 3))}" "${batch[@]}")
timeout "$limit" "${few[@]}" --metrics whole.jsonl >/dev/null
timeout "$limit" "${few[@]}" --metrics rest.jsonl --resume saved >"$out"
contains "$out" "^resumed from saved/step-[0-9]+: step $last, epoch"
same <(steps whole.jsonl $((last + 1))) <(steps rest.jsonl)
