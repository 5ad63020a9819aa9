#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A stdout that takes nothing is an error of every command; a closed one gives its number to no file; of a reader that is gone
# nothing is said. A FIFO is never waited for.
set -euo pipefail
source "$(dirname "$0")/../support/program.sh"

text 600 text.txt
train=(train --data text.txt --model tiny --seq-len 16 --precision fp32 --threads 1 --steps 2)

# full COMMAND...: status 1 and one line.
full() {
  local status=0
  timeout "$limit" "$program" "$@" >/dev/full 2>"$err" || status=$?
  [ "$status" -eq 1 ] || fail "status $status instead of 1: $*"
  contains "$err" 'stdout cannot be written'
}
full --help
full stacks
full "${train[@]}"
full "${train[@]}" --dry-run
full "${train[@]}" --print-schedule
full eval --model "$golden/llama-gqa" --data text.txt --seq-len 16 --precision fp32 --comm threads:2
full generate --model "$golden/llama-gqa" --prompt a --tokens 2 --precision fp32

echo "== closed"
timeout "$limit" "$program" "${train[@]}" --metrics metrics.jsonl --checkpoint-dir saved >&- 2>"$err" || fail "status $?"
lacks metrics.jsonl '^[^{]'
[ "$(wc -l <metrics.jsonl)" -eq 5 ] || fail "$(wc -l <metrics.jsonl) lines of metrics"
timeout "$limit" "$program" "${train[@]}" --metrics metrics2.jsonl --checkpoint-dir saved2 >&- 2>&- <&- || fail "status $?"
same saved/step-00000002/model.safetensors saved2/step-00000002/model.safetensors
timeout "$limit" "$program" "${train[@]}" --trace trace.json --data nowhere 2>&- >"$out" <&- && fail "status 0"
[ ! -s "$out" ] || fail "an error stands in stdout"

echo "== a pipe that nobody reads, with SIGPIPE as it is and ignored by the parent"
python3 - "$program" <<'END'
import os, signal, subprocess, sys
for command in ["--help"], ["stacks"], ["--version"]:
    for how in signal.SIG_DFL, signal.SIG_IGN:
        read, write = os.pipe()
        os.close(read)
        ended = subprocess.run([sys.argv[1], *command], stdout=write, stderr=subprocess.PIPE, restore_signals=False,
                               preexec_fn=lambda: signal.signal(signal.SIGPIPE, how))
        os.close(write)
        assert ended.returncode in (141, -signal.SIGPIPE) and not ended.stderr, (command, how, ended)
END

echo "== a FIFO without the other end is refused, and one with it is written and read"
mkfifo fifo
limit=20
for flag in metrics digests trace; do
  expect_error "--$flag fifo: is a FIFO without a reader; start the reader first" "$program" "${train[@]}" --$flag fifo
  cat fifo >"$flag.read" &
  tessera "${train[@]}" --$flag fifo
  wait $!
done
[ "$(wc -l <metrics.read)" -eq 5 ] || fail "$(wc -l <metrics.read) lines of metrics"
python3 -c 'import json; json.load(open("trace.read"))'
expect_error '^tessera: fifo: is a FIFO without a writer; start the writer first' "$program" diff digests.read fifo
expect_error '^tessera: plot: fifo: is a FIFO without a writer' "$program" plot fifo
expect_error 'out fifo: is a FIFO without a reader' "$program" plot metrics.read --out fifo
expect_error 'against fifo: is a FIFO, and the file is read twice' "$program" replay saved --step 2 --against fifo
{ sleep 0.2; cat digests.read; } >fifo &
tessera diff fifo <(cat digests.read)
