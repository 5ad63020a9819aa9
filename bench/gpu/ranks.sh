#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Steps of `bench/gpu.sh card` that run `tessera --comm nccl`; each rank is a process, and all ranks share one GPU. NCCL refuses
# two ranks of one host on a device, and a host is what NCCL_HOSTID specifies: each rank claims another one. Kernels, proxies,
# graphs and aborts are real; messages go through sockets. Not covered: NVLink, NVLS and registered memory.
#
# usage: ranks.sh strategy RANKS FLAGS...     queued and as CUDA graphs: the losses of one rank within 1 %, and of each other
#        ranks.sh pieces                      digests on 1, 2 and 4 ranks are identical
#        ranks.sh killed RANKS FLAGS...       the last rank is killed: every other one ends with status 3
#        ranks.sh plan                        calibrate, and plans of the steps that bench_step times
# Environment: PROGRAMS, the folder of `tessera`; REPORT_FOLDER, what steps leave for each other; CARD_MODEL, CARD_STEPS and CARD_REPEATS, other sizes.
set -euo pipefail
tessera=$PROGRAMS/tessera
read -ra model <<<"${CARD_MODEL:---vocab 4096 --hidden 1024 --intermediate 4096 --layers 4 --heads 8 --kv-heads 4 --head-dim 128 --seq-len 1024 --batch-size 8}"
common=(train --comm nccl --data text.txt --precision bf16 --lr-schedule constant --validation-fraction 0
  --threads 1 --device-deadline 10)
graphs_on=(--cuda-graphs on) graphs_off=(--cuda-graphs off)

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
trap 'echo "out of time; still running: $(jobs -rp | wc -l) of ${#pids[@]} ranks"; tail -n 6 [0-9]*.log; exit 124' TERM
cd "$folder"
seq 1 40000 >text.txt
pids=()

free_port() {
  local port
  while port=$((20000 + RANDOM % 12000)) && (: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do :; done
  echo $port
}
launch() { # RANKS ARGUMENTS...: starts them
  local count=$1 port rank
  port=$(free_port) pids=()
  for ((rank = 0; rank < count; ++rank)); do
    RANK=$rank WORLD_SIZE=$count LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port NCCL_HOSTID=host$rank \
      NCCL_SOCKET_IFNAME=lo NCCL_IB_DISABLE=1 NCCL_MNNVL_ENABLE=0 "$tessera" "${@:2}" >"$rank.log" 2>&1 &
    pids+=($!)
  done
}
expect() { # STATUS RANK...: these end with it
  local rank code failed=0
  for rank in "${@:2}"; do
    code=0
    wait "${pids[$rank]}" || code=$?
    [ "$code" -eq "$1" ] || { failed=1 && echo "rank $rank: status $code instead of $1"; }
  done
  [ $failed -eq 0 ] || { tail -n 6 [0-9]*.log && return 1; }
}
train() { # NAME RANKS FLAGS...: makes NAME.jsonl
  launch "$2" "${common[@]}" "${model[@]}" --steps "${CARD_STEPS:-6}" --metrics "$1.jsonl" "${@:3}"
  expect 0 "${!pids[@]}"
}
losses() { sed -nE 's/^\{"step":([0-9]+),"loss":([^,]+),"grad_norm":([^,]+),.*/\1 \2 \3/p' "$1"; } # FILE
last() { # FILE KEY: its number in the last record, or null
  local number
  number=$(sed -nE "s/.*\"$2\":([0-9.e+-]+).*/\1/p" "$1" | tail -n 1)
  echo "${number:-null}"
}

strategy() { # RANKS FLAGS...
  local alone=$REPORT_FOLDER/alone.jsonl mode
  if [ ! -s "$alone" ]; then
    train alone 1 "${graphs_off[@]}"
    cp alone.jsonl "$alone"
  fi
  for mode in queued graphs; do
    local -n flags=graphs_$([ $mode = graphs ] && echo on || echo off)
    train $mode "$@" "${flags[@]}"
    echo "{\"bench\": \"${!#} on $1 ranks${NCCL_ALGO:+, $NCCL_ALGO}, $mode\", \"ms\": $(awk "BEGIN { print 1000 * $(last $mode.jsonl step_seconds) }"), \"loss\": $(last $mode.jsonl loss), \"loss_of_one_rank\": $(last "$alone" loss)}"
    paste -d ' ' <(losses "$alone") <(losses $mode.jsonl) | awk -v mode=$mode '
      function off(a, b) { return a - b > 0.01 * b || b - a > 0.01 * b }
      NF != 6 || off($2, $5) { print mode ", step " $1 ": loss " $5 ", and " $2 " on one rank"; failed = 1 }
      END { exit failed || NR == 0 }'
  done
  diff <(losses queued.jsonl) <(losses graphs.jsonl) || { echo "graphs give other losses or gradient norms (>) than queued steps (<)" && return 1; }
}

pieces() {
  local ranks
  for ranks in 1 2 4; do train "$ranks" $ranks --sharding fsdp2:pieces=4 --digests $ranks.digests; done
  "$tessera" diff 1.digests 2.digests
  "$tessera" diff 1.digests 4.digests
}

killed() { # RANKS FLAGS...
  local last=$(($1 - 1)) begin
  launch "$1" "${common[@]}" "${model[@]}" --steps 100000 --log-every 100000 --metrics killed.jsonl "${@:2}"
  until [ "$(grep -c '"loss"' killed.jsonl 2>/dev/null)" -ge 4 ] 2>/dev/null; do
    [ "$(jobs -rp | wc -l)" -eq "$1" ] || expect 0 "${!pids[@]}" # ended by itself
    sleep 0.1
  done
  kill -KILL "${pids[$last]}"
  wait "${pids[$last]}" 2>/dev/null || begin=$SECONDS
  expect 3 $(seq 0 $((last - 1)))
  echo "{\"bench\": \"${!#} on $1 ranks, one killed\", \"seconds_to_end\": $((SECONDS - begin))}"
  tail -qn 1 $(seq -f '%g.log' 0 $((last - 1)))
}

plan() {
  local sequences seconds measured
  launch 1 calibrate --comm nccl --threads 1 --repeats "${CARD_REPEATS:-3}" --out gpus.toml
  expect 0 0
  sed -nE 's/^([a-z0-9_]+) = ([0-9.e+-]+) .*/\1 \2/p' gpus.toml |
    awk 'BEGIN { printf "{\"bench\": \"calibrate --comm nccl\"" } { printf ", \"%s\": %s", $1, $2 } END { print "}" }'
  for sequences in 4 1; do
    seconds=$("$tessera" plan --cluster gpus.toml --ranks 1 --comm nccl --vocab 32000 --hidden 2048 --intermediate 8192 --layers 22 \
      --heads 16 --kv-heads 8 --head-dim 128 --seq-len 4096 --batch-size $sequences --json | sed -nE 's/.*"step_seconds":([0-9.e+-]+).*/\1/p')
    measured=$(sed -nE "s/^\{\"bench\": \"step of a 1.5-billion Llama, $sequences x 4096 tokens\".*\"ms\": ([0-9.]+).*/\1/p" "$REPORT_FOLDER/rows" | sed -n 1p)
    awk -v s="$sequences" -v ms="$seconds" -v measured="$measured" 'BEGIN {
      printf "{\"bench\": \"plan of the step, %d x 4096 tokens\", \"ms\": %.2f", s, 1000 * ms
      if (measured != "") printf ", \"ratio_to_measured\": %.3f", 1000 * ms / measured
      print "}" }'
  done
}

"$@"
