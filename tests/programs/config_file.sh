#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# --config: a TOML file says what flags say; the command line wins; what is unknown is refused.
set -euo pipefail
source "$(dirname "$0")/../support/program.sh"

text 1000 text.txt
cat >run.toml <<'END'
# For every sub-command
precision = "fp32"

[train]
seq_len = 16  # as in --seq-len, or with an underscore
data = ["text.txt"]
model = "tiny"
layers = 1
tied = true
steps = 3
batch-size = 4
lr = 2e-3
lr-schedule = "constant"
seed = 5
sharding = "zero3"
comm = "threads:2"
tiling = "tiles:2"

[generate]
prompt = "the "
END
tessera train --config run.toml --metrics file.jsonl
tessera train --metrics flags.jsonl --precision fp32 --seq-len 16 --data text.txt --model tiny --layers 1 --tied \
  --steps 3 --batch-size 4 --lr 2e-3 --lr-schedule constant --seed 5 --sharding zero3 --comm threads:2 --tiling tiles:2
same <(steps file.jsonl) <(steps flags.jsonl)
same <(head -1 file.jsonl) <(head -1 flags.jsonl)
contains file.jsonl '"stack":"zero3 threads:2 fp32 tiles:2"'

tessera train --config run.toml --steps 2 --seed=6 --metrics wins.jsonl
[ "$(steps wins.jsonl | wc -l)" -eq 2 ] || fail "--steps 2 did not win"
contains wins.jsonl '"seed":6'
tessera generate --config run.toml --model "$golden/llama-odd" --tokens 1
contains "$out" '^the '

bad() { printf '%b\n' "$1" >bad.toml && expect_error "$2" "$program" train --config bad.toml --data text.txt; }
bad 'stpes = 3' "unknown key 'stpes'; did you mean 'steps'"
bad '[train]\nbatchsize = 3' "unknown key 'batchsize'; did you mean 'batch-size'"
bad 'steps = "many"' "bad.toml: steps is the text 'many'; give a number"
dots=$(printf '.a%.0s' {1..40})
bad "a$dots = 1" 'bad.toml: a key has more than 30 parts'
bad "[a$dots]" 'bad.toml: a key has more than 30 parts'
bad "x = {b = 1, \"c\" $dots = 2}" 'bad.toml: a key has more than 30 parts'
bad "stpes = \"$dots\"  # $dots\nlr = '$dots'" "bad.toml: lr is the text '.a.a"  # dots of texts and comments do not count
for name in '$a' '[ $a' '' ' +'; do bad "[$name]" 'bad.toml'; done
bad 'st\xc3\xa9ps = 3' 'bad.toml: a character beyond ASCII stands outside of quotes'
bad 'stpes = "\xc3\xa9"  # \xc3\xa9' "unknown key 'stpes'"
bad '[[$a]]' "bad.toml: a table's name, behind \\[, begins with what is no letter of a name"
bad 'x = [\n[+1],\n[ {a = 1}]]' "unknown key 'x'"
bad 'steps = 1.5' "is not a whole number"
bad 'steps = ' 'bad.toml: .*line 1'
bad 'sharding = "fsdp3"' "fsdp3 is not known; did you mean 'fsdp2'"
expect_error 'nowhere.toml' "$program" train --config nowhere.toml --data text.txt

echo "== no file that a run reads is written"
cp run.toml before.toml
ln -s run.toml link.toml
tessera train --config run.toml --steps 1 --checkpoint-dir runs
for flag in trace metrics digests; do
  for file in run.toml ./run.toml link.toml; do
    expect_error "--$flag $file is the file of --config; give it a file of its own" "$program" train --config run.toml --$flag $file
  done
done
expect_error '--trace runs/step-00000001/config.json is a file of --model' "$program" train --config run.toml \
  --model runs/step-00000001 --trace runs/step-00000001/config.json
expect_error '--metrics runs/step-00000001/model.safetensors is a file of --resume runs' "$program" train --config run.toml \
  --resume runs --metrics runs/step-00000001/model.safetensors
same before.toml run.toml
