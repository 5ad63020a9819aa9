#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `train --fit`: the best three ways are timed, the fastest is taken, and the run is the one that its flags make; what --fit cannot be given with.
set -euo pipefail
source "$(dirname "$0")/../support/program.sh"

text 3000 text.txt
cp "$golden/../docs/two.toml" two.toml
flags=(--data text.txt --model tiny --layers 2 --seq-len 32 --batch-size 8 --threads 1 --steps 4 --comm threads:2)
fit=(--fit --cluster two.toml)

# flags_taken: those of the way that was taken, from $out.
flags_taken() { grep -B 1 '^             planned .*; taken$' "$out" | sed -n 's/^fit  *[0-9]*  //p'; }
# three_ways: $out begins with three ways, of which one is taken.
three_ways() {
  [ "$(head -n 6 "$out" | grep -Ec '^fit       [123]  --sharding |^             planned [0-9.]+ m?s a step, took [0-9.]+ m?s(; taken)?$')" -eq 6 ] ||
    fail "not three ways first"
  [ "$(grep -c '; taken$' "$out")" -eq 1 ] || fail "not one is taken"
  for way in 1 2 3; do contains "$err" "^--fit: timing $way of 3, --sharding "; done
}
# same_runs A B: metrics, weights and records of the runs in folders A and B.
same_runs() {
  same <(steps "$1.jsonl") <(steps "$2.jsonl")
  [ "$(wc -l <"$1.jsonl")" -eq "$(wc -l <"$2.jsonl")" ] || fail "another number of lines of metrics"
  [ "$(cd "$1" && listing)" = "$(cd "$2" && listing)" ] || fail "other files: $(cd "$1" && listing)"
  for file in "$1"/step-*/*.safetensors; do same "$file" "$2/${file#*/}"; done
  python3 -c "
import json, sys
a, b = (json.load(open(folder + '/step-00000004/trainer.json'))['run'] for folder in sys.argv[1:])
assert a == b, [(key, a.get(key), b.get(key)) for key in a.keys() | b.keys() if a.get(key) != b.get(key)]" "$1" "$2" || fail "other records"
}

echo "== the run is the one of the flags that it takes, and nothing is left of the trials"
tessera train "${flags[@]}" "${fit[@]}" --metrics fit.jsonl --checkpoint-dir fit
three_ways
# shellcheck disable=SC2046
set -- $(flags_taken)
[ $# -ge 2 ] || fail "no flags"
[ "$(ls)" = "$(printf 'fit\nfit.jsonl\ntext.txt\ntwo.toml')" ] || fail "left files: $(ls)"
tessera train "${flags[@]}" --cluster two.toml "$@" --metrics direct.jsonl --checkpoint-dir direct
lacks "$out" '^fit '
same_runs fit direct

echo "== it goes on, and is computed again, as the run of these flags"
tessera train "${flags[@]/%4/6}" "$@" --resume fit
lacks "$out" 'resumed: --(sharding|recompute|grad-accum|sequence|tiling)'
tessera replay fit --step 2 --against fit.jsonl
contains "$out" '^step 2: loss and gradient norm are those of fit.jsonl$'

echo "== what flags say stays, in a file too"
printf 'fit = true\ncluster = "two.toml"\nrecompute = true\n' >run.toml
tessera train --config run.toml "${flags[@]}" --sharding zero2 --grad-accum 2
[ "$(grep -c '^fit       [123]  --sharding zero2[^ ]* .*--grad-accum 2 --recompute' "$out")" -ge 1 ] || fail "other ways"
[ "$(grep -c '^fit ' "$out")" -eq "$(grep -c '^fit       [123]  --sharding zero2' "$out")" ] || fail "other ways"

echo "== pieces, documents, adapters, digests"
tessera train "${flags[@]}" "${fit[@]}" --sharding fsdp2:pieces=4 --verify-every 2 --digests fit.digests
# shellcheck disable=SC2046
tessera train "${flags[@]}" $(flags_taken) --verify-every 2 --digests direct.digests
cmp <(grep -v event fit.digests) <(grep -v event direct.digests)
tessera train "${flags[@]}" "${fit[@]}" --document-separator 10 --lora-rank 2 --lora-dropout 0.1 --seed 3

echo "== a cluster whose way takes more than there is"
sed 's/^memory = .*/memory = 800_000_000_000/' two.toml >ample.toml
refused '^tessera: --fit: a plan says that these ways fit, and for none of them is there memory.*gave no [0-9]+ bytes' \
  bash -c 'ulimit -v 3000000; exec "$@"' - "$program" train --fit --cluster ample.toml --data text.txt --vocab 32000 \
  --hidden 4096 --layers 2 --heads 32 --intermediate 11008 --seq-len 64 --batch-size 4 --threads 1 --comm threads:2

echo "== what --fit cannot be given with"
no() { expect_error "$1" "$program" train "${flags[@]}" "${@:2}"; }
no '--fit plans with the figures of a cluster, and --cluster is missing; tessera calibrate --out FILE measures' --fit
no '--fit times steps of ways to train, and --dry-run starts none' "${fit[@]}" --dry-run
no '--fit times steps of ways to train, and --print-schedule starts none' "${fit[@]}" --print-schedule
no '--fit looks for the way that a run begins with, and --resume fit goes on' "${fit[@]}" --resume fit
no '--fit plans with the memory that --cluster says, and --memory 4GiB' "${fit[@]}" --memory 4GiB
sed 's/^ranks = 2/ranks = 4/; s/^ranks_per_node = 2 /ranks_per_node = 4 /' two.toml >four.toml
no '--fit: the run has 2 ranks, and --cluster four.toml is of 4; start as many' --fit --cluster four.toml
no '--fit: no way can be: --cluster h100 computes on cuda, and this stack on cpu' --fit --cluster h100
no '--cluster absent: no such file' --fit --cluster absent
sed 's/^memory = .*/memory = 1_048_576/' two.toml >small.toml
no '--fit: none of [0-9]+ ways fits; the one that takes the least, --sharding .*take more ranks' --fit --cluster small.toml
no '--metrics text.txt is a file of --data' "${fit[@]}" --metrics text.txt

echo "== what the run would refuse is told before anything is timed"
no '--checkpoint-dir fit: holds checkpoints of another run' "${fit[@]}" --checkpoint-dir fit
flags=("${flags[@]:2}")
no '--data is missing; give files or folders of text' "${fit[@]}"
no 'data: absent.txt: no such file or folder' "${fit[@]}" --data absent.txt
