#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Adapters with dropout train under every strategy, tiling and precision, with and without recomputation, and take to
# the byte what --dry-run says; and no less than without dropout.
#
# usage: dropout.sh PROGRAM    TESSERA_SWEEP=sample: some of them
source "$(dirname "$0")/../support/program.sh"
set -euo pipefail
text 20000 text.txt
models=("--model tiny" "--model small" "--model tiny --vocab 2000" "--model small --family qwen3 --tied --intermediate 100"
  "--model tiny --family mistral --sliding-window 7" "--model tiny --family qwen2 --hidden 50 --head-dim 10 --heads 5 --kv-heads 1")
strategies=(fsdp2 fsdp2:no-reshard zero1 zero2 zero3 hybrid:1 hybrid:2 replicated)
tilings=(off tokens:16 tiles:3 budget:60000 budget:300000)
targets=('*' q_proj,v_proj down_proj mlp.*)
ranks=(1 2) precisions=(fp32 bf16) recomputes=("" --recompute)
if [ "${TESSERA_SWEEP:-whole}" != whole ]; then
  models=("--model tiny"); strategies=(fsdp2 zero3); tilings=(off tokens:16); ranks=(2); recomputes=(""); precisions=(fp32); targets=('*')
fi
flags=(--data text.txt --layers 2 --seq-len 64 --batch-size 4 --threads 1 --steps 2 --lora-rank 4 --validation-fraction 0.02)

# planned ARG...: bytes that a rank takes, by --dry-run.
planned() {
  tessera train "${flags[@]}" "$@" --dry-run
  grep -E '^  peak ' "$out" | tr -s ' ' | cut -d ' ' -f 3
}
taken() { grep -o '"peak_bytes":[0-9]*' metrics.jsonl | tail -n 1 | cut -d : -f 2; }

runs=0 more=0 turn=0
for model in "${models[@]}"; do
  for precision in "${precisions[@]}"; do
    for strategy in "${strategies[@]}"; do
      for tiling in "${tilings[@]}"; do
        for recompute in "${recomputes[@]}"; do
          p=${ranks[$((turn % ${#ranks[@]}))]}
          [ "$strategy" != hybrid:2 ] || p=2
          how=($model --precision $precision --sharding "$strategy" --tiling "$tiling" $recompute
            --lora-targets "${targets[$((turn / 2 % ${#targets[@]}))]}" --comm threads:"$p")
          turn=$((turn + 1))
          without=$(planned "${how[@]}")
          with=$(planned "${how[@]}" --lora-dropout 0.1)
          rm -f metrics.jsonl
          tessera train "${flags[@]}" "${how[@]}" --lora-dropout 0.1 --metrics metrics.jsonl
          [ "$(taken)" -eq "$with" ] || fail "${how[*]}: $(taken) bytes taken, $with planned"
          case $tiling in budget*) ;; *) [ "$with" -ge "$without" ] || fail "${how[*]}: $with bytes, $without without dropout" ;; esac
          [ "$with" -le "$without" ] || more=$((more + 1))
          runs=$((runs + 1))
        done
      done
    done
  done
done
[ "$more" -gt 0 ] || fail "dropout takes no memory in any run: nothing was tested"
echo "dropout: $runs runs took what was planned, $more of them more than without dropout"
