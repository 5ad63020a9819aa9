#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What a run prints: whole lines into a file, a progress line that is overwritten on a terminal; metrics line by line.
set -euo pipefail
source "$(dirname "$0")/../support/program.sh"

text 3000 text.txt
run=(train --data text.txt --model tiny --seq-len 16 --steps 10 --precision fp32 --threads 1)
tessera "${run[@]}" --log-every 4 --validation-every 5 --metrics metrics.jsonl --trace trace.json --checkpoint-dir saved
lacks "$out" $'[\r\033]'
contains "$out" '^step +8/10 .* [0-9]+:[0-9]+ left$'
contains "$out" '^step 10/10 .*%$'
[ "$(grep -c '^step .* tok/s' "$out")" -eq 4 ] || fail "not the lines of steps 1, 4, 8 and 10"
contains "$out" '^step 5  held-out loss [0-9.]+ nats per token'
contains "$out" '^checkpoint saved/step-00000010'
[ ! -s "$err" ] || fail "something on stderr"

cores=$(python3 -c 'import os; print(len(os.sched_getaffinity(0)))')
tessera "${run[@]:0:7}" --steps 1 --batch-size $((cores + 1)) --precision fp32 --threads 1 --comm threads:$((cores + 1))
[ "$(grep -c "^tessera: warning: $((cores + 1)) ranks have 1 thread each and may run on $cores cores\?, .*; take fewer ranks\$" "$err")" -eq 1 ] ||
  fail "not one warning of crowded cores"

echo "== what a launcher states of cores is compared with what the process has; OMP_NUM_THREADS counts without --threads"
one=("${run[@]:0:7}" --steps 1 --batch-size 2 --precision fp32)
step=(env SLURM_STEP_NUM_TASKS=1 SLURM_STEP_ID=0 SLURM_PROCID=0)
"${step[@]}" SLURM_CPUS_PER_TASK=2 taskset -c "$(python3 -c 'import os; print(min(os.sched_getaffinity(0)))')" \
  "$program" "${one[@]}" >"$out" 2>"$err" || fail "in a step of Slurm"
contains "$out" '^stack .*, 1 rank x 1 thread, '
[ "$(grep -c 'warning: a process of this run may run on 1 core, and the job requested 2 for each process (SLURM_CPUS_PER_TASK); start it with srun --cpus-per-task=2$' "$err")" -eq 1 ] ||
  fail "not one warning of cores that lack"
SLURM_CPUS_ON_NODE=$cores tessera "${one[@]}" --comm threads:1
[ ! -s "$err" ] || fail "a warning where launcher and process agree"
tessera "${one[@]}" --threads 1 --warmup 4
contains "$err" '^tessera: warning: --warmup 4 is more than --steps 1, so that the learning rate ends at 0.00025 of --lr 0.001; '
OMP_NUM_THREADS=1 SLURM_CPUS_ON_NODE=$cores tessera "${one[@]}"
contains "$out" '^stack .*, 1 rank x 1 thread, '
OMP_NUM_THREADS=$((cores + 1)) tessera "${one[@]}"
contains "$err" "warning: a rank has $((cores + 1)) threads and may run on $cores cores?, which makes steps slow; take --threads $cores\$"
OMP_NUM_THREADS=$((cores + 1)) tessera "${one[@]}" --threads 1
contains "$out" '^stack .*, 1 rank x 1 thread, '
[ ! -s "$err" ] || fail "a warning of threads that --threads overrules"

python3 - <<'END'
import json
lines = [json.loads(line) for line in open('metrics.jsonl')]
assert [line.get('event', line.get('step')) for line in lines] == \
    ['start', 1, 2, 3, 4, 5, 'validation', 6, 7, 8, 9, 10, 'validation', 'summary'], lines
assert {'stack', 'model', 'seed', 'world', 'threads'} <= lines[0].keys()
for line in lines:
    if 'event' not in line:
        assert {'loss', 'grad_norm', 'lr', 'tokens', 'tokens_per_second', 'step_seconds', 'peak_bytes', 'tflops', 'mfu',
                'mfu_peak'} <= line.keys(), line
        assert line['tokens'] == 128 * line['step'] and line['mfu_peak'].startswith('matmul f32'), line
assert {'validation_loss', 'tokens', 'seconds', 'peak_bytes'} <= lines[-1].keys()
events = json.load(open('trace.json'))['traceEvents']
assert len(events) > 100 and {'gather 0', 'forward 1'} & {event['name'] for event in events}
END

if command -v script >/dev/null; then
  TERM=xterm timeout "$limit" script -qec "$program ${run[*]} --log-every 100" /dev/null </dev/null >"$out"
  contains "$out" $'\r\033\\[K'
  contains "$out" '% +step [0-9]+/10 .* left'
  TERM=dumb timeout "$limit" script -qec "$program ${run[*]} --log-every 100" /dev/null </dev/null >"$out"
  lacks "$out" $'\033'
else
  echo "skipped: a terminal (no script(1))"
fi
