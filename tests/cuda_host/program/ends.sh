#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `tessera train --comm nccl` that cannot begin or go on: every rank ends soon, with its status and one sentence, and gives
# back what it had of CUDA and NCCL.
#
# usage: ends.sh PROGRAM     tests_cuda_host_program; TESSERA_SWEEP=sample: some of the calls that fail
set -euo pipefail
source "$(dirname "$0")/ranks.sh"

text 3000 text.txt
flags=(train --comm nccl --data text.txt --layers 1 --hidden 32 --heads 2 --kv-heads 1 --head-dim 16 --intermediate 48
  --vocab 256 --seq-len 16 --batch-size 4 --precision fp32 --threads 1)
short=(--deadline 2)  # where a rank does not come
begin() { start_ranks 2 "${flags[@]}" "$@"; }
begin_long() { # FLAG...: returns when it has made steps
  rm -f metrics.jsonl
  begin --steps 100000 --log-every 1000000 --lr-schedule constant --metrics metrics.jsonl "$@"
  for _ in $(seq 600); do
    [ ! -e metrics.jsonl ] || [ "$(grep -c '"loss"' metrics.jsonl)" -lt 4 ] || return 0
    kill -0 "${processes[0]}" 2>/dev/null || ranks_fail "ended by itself"
    sleep 0.05
  done
  ranks_fail "made no step"
}

echo "== the environment"
TESSERA_DOUBLE_GPUS=1 tessera "${flags[@]}" --steps 1  # no launcher: one rank
OMPI_COMM_WORLD_SIZE=2 refused 'would be as many runs, each alone.*torchrun' "$program" "${flags[@]}" --steps 1
plant=(TESSERA_DOUBLE_GPUS=1)
begin --steps 1
end_ranks "2 2" 'rank 0: 2 ranks run on this machine, which has 1 devices' 'rank 1: 2 ranks'
plant=(TESSERA_DOUBLE_GPUS=0)
begin --steps 1
end_ranks "2 2" "no device: CUDA's driver sees no GPU"
plant=(1:RANK=)
begin --steps 1 "${short[@]}"
end_ranks "2 2" 'rank 1 did not come within 2.000 s' 'RANK is not set, but others'
plant=(1:LOCAL_RANK=2)
begin --steps 1 "${short[@]}"
end_ranks "2 2" 'rank 1 did not come' 'LOCAL_RANK is 2, LOCAL_WORLD_SIZE 2'
plant=(1:RANK=0)  # one of them takes the port
begin --steps 1 "${short[@]}"
end_ranks "2 2" 'rank 1 did not come|cannot listen at port [0-9]+ \(Address already in use\); choose another MASTER_PORT'

echo "== what ranks were told, and their files"
plant=(1:--lr=0.5)
begin --steps 1
end_ranks "2 2" "started with different arguments: rank 0 has 'lr = 0.001', rank 1 has 'lr = 0.5'"
plant=()
begin --steps 1 --resume nowhere
end_ranks "2 2" 'nowhere'
begin --steps 1 --model nothing
end_ranks "2 2" 'nothing'

echo "== a GPU's memory"
on_ranks 2 "${flags[@]}" --steps 1
took=$(reported 1 peak)
plant=(TESSERA_DOUBLE_GPU_BYTES="$took")
on_ranks 2 "${flags[@]}" --steps 1
plant=(1:TESSERA_DOUBLE_GPU_BYTES=$((took - 1)))
begin --steps 1
end_ranks "3 2" 'NCCL: .* failed: remote error|remote error' 'the device gave no [0-9]+ bytes of memory: [0-9]+ of [0-9]+ are free; '
plant=()

echo "== numbers that are not finite"
begin --steps 50 --lr 1000 --clip 0 --cuda-graphs
end_ranks "3 3" 'step [0-9]+: loss is .* and the gradient norm is .*; stopped before any weight was touched'

for graphs in false true; do
  echo "== signals, --cuda-graphs=$graphs"
  rm -rf saved
  begin_long --checkpoint-dir saved --cuda-graphs=$graphs
  kill -TERM "${processes[1]}"
  end_ranks "143 143"
  contains 0.out '^SIGTERM: ended after step [0-9]+: saved/step-'
  plant=()
  on_ranks 2 "${flags[@]}" --steps $((10#$(sed 's/step-//' saved/latest) + 1)) --lr-schedule constant --resume saved
  begin_long --cuda-graphs=$graphs --device-deadline 5
  kill -KILL "${processes[1]}"
  end_ranks "3 137" 'rank 0, .* waited 5\.[0-9]* s for the device or the other ranks; the limit of the device is 5.000 s'
done

echo "== calls that fail"
fails() { # FUNCTION NUMBER: on rank 1; whether the run came to it
  plant=(1:TESSERA_DOUBLE_FAULT="$1:$2")
  begin --steps 4 --cuda-graphs "${short[@]}"
  wait_for_ranks
  [ "${statuses[*]}" != "0 0" ] || return 1
  [[ "${statuses[*]}" =~ ^[23]\ [123]$ ]] || ranks_fail "$1, call $2: statuses ${statuses[*]}"
  [ "$(cat 0.err 1.err | wc -l)" -eq 2 ] || ranks_fail "$1, call $2: not a sentence each"
  grep -Eq 'CUDA|cuBLASLt|NCCL|device|driver' 1.err || ranks_fail "$1, call $2: not said what failed"
  ! grep -h '^left' ./*.report >"$err" || ranks_fail "$1, call $2: something is left"
}
plant=()
begin --steps 4 --cuda-graphs
wait_for_ranks
sed -n 's/^calls //p' 1.report >calls
if [ "${TESSERA_SWEEP:-whole}" = whole ]; then
  unseen='Destroy|Free|Finalize|cudaDeviceSynchronize|cudaRuntimeGetVersion'  # by destructors, or told to nobody
  while read -r function count; do
    [[ $function =~ $unseen ]] || fails "$function" 1 || ranks_fail "$function fails unseen"
    # Hosts that wait ask as often as they find time: a run may make fewer calls.
    [[ $function =~ $unseen ]] || [ "$count" -lt 2 ] || fails "$function" $((count / 2)) || fails "$function" 2 || true
  done <calls
else
  for call in cudaMalloc:5 cudaLaunchKernel:40 cublasLtMatmul:30 ncclAllGather:3 ncclGroupEnd:10 cudaGraphLaunch:1 \
    cudaEventRecord:20 cudaHostAlloc:3; do
    fails "${call%:*}" "${call#*:}" || ranks_fail "$call fails unseen"
  done
fi
