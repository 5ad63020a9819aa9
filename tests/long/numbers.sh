#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every number of every flag of every command at the edges: one sentence with status 2, a run that ends well, or one
# that still makes steps when its time is over. Never a crash, a negative status, a wrap, or silence.
#
# usage: numbers.sh PROGRAM    TESSERA_SWEEP=sample: every flag once, at one of the edges
source "$(dirname "$0")/../support/program.sh"
sample=; [ "${TESSERA_SWEEP:-whole}" = whole ] || sample=1
seconds=10                  # of one case
ulimit -v $((16 << 20))     # KiB: what cannot be allocated is refused here and now
text 3000 text.txt
edges=(0 -1 2147483648 4294967296 9223372036854775807 9223372036854775808 nan inf 1e39 1e-320)
cases=0 refused=0 ended=0 running=0 bad=0

# try COMMAND...: one case.
try() {
  local status=0
  timeout -s KILL "$seconds" "$program" "$@" >"$out" 2>"$err" || status=$?
  cases=$((cases + 1))
  case $status in
    0) ended=$((ended + 1)); [ -s "$out" ] || { bad=$((bad + 1)); echo "NOTHING DONE: $*"; } ;;
    1 | 2 | 3) refused=$((refused + 1))
      [ "$(wc -l <"$err")" -eq 1 ] && grep -q '^tessera: ..........' "$err" ||
        { bad=$((bad + 1)); echo "NO SENTENCE ($status): $*: $(head -c 300 "$err")"; } ;;
    137) running=$((running + 1))  # a bench prints at its end
      [ -s "$out" ] || [ "$1" = bench ] || { bad=$((bad + 1)); echo "SILENT: $*"; } ;;
    *) bad=$((bad + 1)); echo "STATUS $status: $*: $(head -c 300 "$err")" ;;
  esac
}

# numbers_of COMMAND...: its flags that take a number.
numbers_of() { "$program" "$@" --help | sed -nE 's/^ *(--[a-z0-9-]+) (NUMBER|INT|FLOAT).*/\1/p'; }

at=0
# sweep COMMAND... -- FLAG...: each flag at each edge.
sweep() {
  local command=() flag edge
  while [ "$1" != -- ]; do command+=("$1"); shift; done
  shift
  for flag; do
    for edge in "${edges[@]}"; do
      if [ -n "$sample" ]; then
        edge=${edges[$((at++ % ${#edges[@]}))]}
      fi
      local kept=() skip= word
      for word in "${command[@]}"; do  # a flag is given once
        if [ -n "$skip" ]; then skip=; continue; fi
        if [ "$word" = "$flag" ]; then skip=1; continue; fi
        kept+=("$word")
      done
      try "${kept[@]}" "$flag=$edge"
      [ -z "$sample" ] || break
    done
  done
}

# words FLAG PATTERN COMMAND...: a flag whose number stands inside a word.
words() {
  local flag=$1 pattern=$2 edge
  shift 2
  for edge in "${edges[@]}"; do
    if [ -n "$sample" ]; then edge=${edges[$((at++ % ${#edges[@]}))]}; fi
    try "$@" "$flag=${pattern/N/$edge}"
    [ -z "$sample" ] || break
  done
}

train=(train --data text.txt --model tiny --seq-len 16 --precision fp32 --steps 2 --batch-size 4)
eval=(eval --model "$golden/llama-gqa" --data text.txt --seq-len 16 --precision fp32)
generate=(generate --model "$golden/llama-gqa" --prompt a --tokens 4 --precision fp32)
sweep "${train[@]}" -- $(numbers_of train)
sweep "${train[@]}" --dry-run -- --steps --seq-len --batch-size --grad-accum --ranks --hidden --layers --vocab
sweep "${eval[@]}" -- $(numbers_of eval)
sweep "${generate[@]}" -- $(numbers_of generate)
for bench in mlp attention head step comm optim; do
  [ -z "$sample" ] || break
  sweep bench $bench --repeats 1 --hidden 64 --seq-len 64 --layers 1 --vocab 128 --precision fp32 -- $(numbers_of bench)
done
for pattern in fsdp2:N fsdp2:prefetch=N hybrid:N hybrid:N:full zero3:persist=N zero3:live=N; do
  words --sharding $pattern "${train[@]}" --comm threads:2
done
for pattern in tiles:N tokens:N budget:N; do words --tiling $pattern "${train[@]}"; done
words --comm threads:N "${train[@]}"
words --memory N "${train[@]}" --tiling budget:auto
words --loss-scale dynamic:N "${train[@]}"
echo "numbers: $cases cases: $refused refused in a sentence, $ended ended well, $running still running; $bad bad"
[ "$bad" -eq 0 ]
