#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs under mpirun: the golden losses, with shared windows and without, the dry run's peak to the byte, plain lines in a file, a checkpoint taken over.
set -euo pipefail
source "$(dirname "$0")/../support/program.sh"

# on NP ARG...: must end with status 0; its output is in $out and $err.
on() {
  local status=0
  timeout "$limit" mpirun --oversubscribe -np "$1" "$program" "${@:2}" >"$out" 2>"$err" || status=$?
  [ "$status" -eq 0 ] || fail "status $status: $*"
}

loss_of() { sed 's/.*"loss":\([^,]*\),.*/\1/' "$1"; }  # FILE: what eval printed

text 3000 text.txt

if grep -qw avx2 /proc/cpuinfo; then
  echo "== ranks on unlike processors compute as the lesser one"
  unlike=("$program" train --model tiny --seq-len 64 --steps 3 --batch-size 4 --precision bf16 --threads 1 --data text.txt)
  timeout "$limit" mpirun --oversubscribe -np 1 env TESSERA_ISA=baseline "${unlike[@]}" --metrics unlike.jsonl : \
    -np 1 "${unlike[@]}" --metrics unlike.jsonl >"$out" 2>"$err" || fail "two instruction sets"
  contains "$err" "the ranks' processors have different instruction sets; all use baseline"
  refused 'ranks were started with different environments.*TESSERA_BF16_MATMUL' mpirun --oversubscribe -np 1 env \
    TESSERA_BF16_MATMUL=float "${unlike[@]}" : -np 1 "${unlike[@]}"
  TESSERA_ISA=baseline on 2 "${unlike[@]:1}" --metrics alike.jsonl
  same <(steps unlike.jsonl) <(steps alike.jsonl)
fi

cores=($(python3 -c 'import os; print(*sorted(os.sched_getaffinity(0)))'))
if [ ${#cores[@]} -ge 2 ]; then
  echo "== ranks that a launcher binds to cores of their own do not crowd them; two on one core do"
  bound=("$program" train --model tiny --seq-len 64 --steps 1 --batch-size 4 --precision fp32 --data text.txt)
  for second in "${cores[1]}" "${cores[0]}"; do
    timeout "$limit" mpirun --oversubscribe --bind-to none -np 1 taskset -c "${cores[0]}" "${bound[@]}" : \
      -np 1 taskset -c "$second" "${bound[@]}" >"$out" 2>"$err" || fail "bound to ${cores[0]} and $second"
    contains "$out" "^stack .*, 2 ranks x 1 thread, "
    [ "$second" = "${cores[0]}" ] || lacks "$err" "warning"
  done
  [ "$(grep -c '^tessera: warning: 2 ranks have 1 thread each and may run on 1 core, .* --bind-to none, or --map-by slot:PE=1$' "$err")" -eq 1 ] ||
    fail "not one warning of a crowded core"
fi

echo "== text by a tokenizer: rank 0 makes the tokens of all"
tokenized=(train --model tiny --vocab 1201 --seq-len 64 --steps 2 --batch-size 4 --precision fp32 --threads 1 --data text.txt
           --tokenizer "$golden/../text/tokenizers/smollm.json" --end-token none)
on 2 "${tokenized[@]}" --metrics tokens_mpi.jsonl
tessera "${tokenized[@]}" --comm threads:2 --metrics tokens_threads.jsonl
same <(steps tokens_mpi.jsonl) <(steps tokens_threads.jsonl)

model=$golden/llama-gqa
length=$((($(stat -c %s "$model/text.bin") - 1) / 6))
flags=(train --model "$model" --data "$model/text.bin" --seq-len "$length" --batch-size 6 --validation-fraction 0
       --steps 20 --lr 1e-3 --lr-schedule constant --weight-decay 0.1 --clip 0 --precision fp32 --threads 1)
tessera "${flags[@]}" --metrics one.jsonl
for stack in "2 fsdp2" "3 zero3" "2 replicated"; do
  read -r ranks sharding <<<"$stack"
  echo "== $stack"
  rm -rf saved many.jsonl threads.jsonl
  on "$ranks" "${flags[@]}" --sharding "$sharding" --metrics many.jsonl --checkpoint-dir saved
  lacks "$out" $'[\r\033]'
  contains "$out" "^stack +$sharding mpi fp32 off, $ranks ranks x 1 thread"
  close <(steps many.jsonl) <(steps one.jsonl) 1e-5
  tessera "${flags[@]}" --sharding "$sharding" --comm "threads:$ranks" --metrics threads.jsonl
  same <(steps many.jsonl) <(steps threads.jsonl)
  rm -f messages.jsonl
  on "$ranks" "${flags[@]}" --sharding "$sharding" --metrics messages.jsonl --shared-windows=false
  same <(steps many.jsonl) <(steps messages.jsonl)

  tessera "${flags[@]}" --sharding "$sharding" --comm mpi --dry-run --ranks "$ranks"
  planned=$(awk '$1 == "peak" { print $2 }' "$out")
  [ "$(summary many.jsonl peak_bytes)" -eq "$planned" ] ||
    fail "planned $planned bytes, took $(summary many.jsonl peak_bytes)"

  on "$ranks" eval --model saved/step-00000020 --data "$model/text.bin" --seq-len $length --precision fp32 --threads 1
  loss_of "$out" >many
  tessera eval --model saved/step-00000020 --data "$model/text.bin" --seq-len $length --precision fp32 --threads 1
  close many <(loss_of "$out") 1e-6
done

echo "== the checkpoint of two processes goes on in one, and the other way round"
flags=(train --model tiny --data text.txt --seq-len 16 --steps 6 --precision fp32 --threads 1)
rm -rf saved ./*.jsonl
on 2 "${flags[@]}" --checkpoint-dir saved --checkpoint-every 3 --metrics whole.jsonl
rm -r saved/step-00000006
tessera "${flags[@]}" --comm threads:2 --resume saved --metrics threads.jsonl
same <(steps whole.jsonl 4) <(steps threads.jsonl)
on 2 "${flags[@]}" --resume saved --metrics mpi.jsonl
same <(steps whole.jsonl 4) <(steps mpi.jsonl)

echo "== a plan under mpirun is printed once"
timeout "$limit" mpirun --oversubscribe -np 2 "$program" "${flags[@]}" --comm mpi --dry-run >"$out" 2>"$err" || fail "status $?"
[ "$(grep -c ' 2 ranks, .*bytes of' "$out")" -eq 1 ] || fail "not one plan of 2 ranks"

echo "== processes that share each sequence, with windows and without"
shared=(train --data text.txt --model tiny --heads 4 --kv-heads 2 --seq-len 17 --batch-size 8 --threads 1 --precision fp32 --steps 3)
tessera "${shared[@]}" --comm threads:2 --metrics apart.jsonl
for windows in true false; do
  rm -f shared.jsonl
  on 2 "${shared[@]}" --comm mpi --shared-windows="$windows" --sequence ulysses:2:parts=2 --metrics shared.jsonl
  close <(steps shared.jsonl | cut -d ' ' -f 1-3) <(steps apart.jsonl | cut -d ' ' -f 1-3) 1e-6
done
