#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Saved on P ranks, resumed on Q: for P, Q in {1, 2, 3, 4, 8}, each strategy that saves with each that resumes in turn,
# in both precisions. The same ranks and strategy go on to the bit; others stay close to the run that never stopped.
#
# usage: resume.sh PROGRAM    TESSERA_SWEEP=sample: some of them
source "$(dirname "$0")/../support/program.sh"
set -euo pipefail
text 3000 text.txt
ranks=(1 2 3 4 8)
strategies=(fsdp2 fsdp2:no-reshard zero1 zero2 zero3 replicated hybrid:K hybrid:K:zero3)
precisions=(fp32 bf16)
if [ "${TESSERA_SWEEP:-whole}" != whole ]; then ranks=(2 3); strategies=(fsdp2 zero3); precisions=(fp32); fi
flags=(--data text.txt --model tiny --layers 1 --seq-len 16 --batch-size 24 --steps 4 --threads 1 --validation-fraction 0.02)

# strategy NAME RANKS: with a group that divides the ranks.
strategy() {
  local group=1
  [ $(($2 % 2)) -ne 0 ] || group=2
  echo "${1/:K/:$group}"
}

pairs=0 exact=0
for precision in "${precisions[@]}"; do
  tolerance=1e-4
  [ $precision = fp32 ] || tolerance=2e-2
  rm -rf whole && mkdir whole
  for p in "${ranks[@]}"; do
    for name in "${strategies[@]}"; do
      saved=whole/$name-$p
      tessera train "${flags[@]}" --precision $precision --sharding "$(strategy "$name" "$p")" --comm threads:"$p" \
        --checkpoint-dir "$saved" --checkpoint-every 2 --metrics "$saved.jsonl"
    done
  done
  turn=0
  for p in "${ranks[@]}"; do
    for q in "${ranks[@]}"; do
      for i in "${!strategies[@]}"; do
        from=${strategies[$i]}
        for into in "$from" "${strategies[$(((i + 1 + turn++) % ${#strategies[@]}))]}"; do
          rm -f rest.jsonl
          tessera train "${flags[@]}" --precision $precision --sharding "$(strategy "$into" "$q")" --comm threads:"$q" \
            --resume "whole/$from-$p/step-00000002" --metrics rest.jsonl
          pairs=$((pairs + 1))
          if [ "$p" = "$q" ] && [ "$from" = "$into" ]; then
            same <(steps "whole/$from-$p.jsonl" 3) <(steps rest.jsonl)
            exact=$((exact + 1))
          else
            close <(steps "whole/$from-$p.jsonl" 3) <(steps rest.jsonl) $tolerance
          fi
        done
      done
    done
  done
done
echo "resume: $pairs resumed runs, $exact of them to the bit"
