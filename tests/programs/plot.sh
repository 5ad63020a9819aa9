#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# plot: a picture of a run's steps and of two runs, resumed and damaged metrics files; event files of a resumed run.
set -euo pipefail
source "$(dirname "$0")/../support/program.sh"

text 3000 text.txt
run=(train --data text.txt --model tiny --seq-len 16 --batch-size 4 --precision fp32 --threads 1 --steps 6 --warmup 1
     --validation-fraction 0.1 --validation-every 2)

# points FILE: how many points each polyline has; the picture is well-formed XML.
points() { python3 - "$1" <<'PY'
import sys
import xml.etree.ElementTree as tree
root = tree.parse(sys.argv[1]).getroot()
svg = "{http://www.w3.org/2000/svg}"
assert root.tag == svg + "svg", root.tag
print(*[len(line.get("points").split()) for line in root.iter(svg + "polyline")])
print(len([c for c in root.iter(svg + "circle") if c.get("class") == "held-out"]))
PY
}

echo "== a run, and the same resumed into the same files"
tessera "${run[@]}" --metrics 'a&b.jsonl' --tensorboard board --checkpoint-dir saved --checkpoint-every 3 \
  --lr-schedule wsd --lr-decay-steps 2
tessera plot 'a&b.jsonl'
same <(points plot.svg) <(printf '6 6 6\n3\n')
python3 -c 'import json
rates = [o["lr"] for o in map(json.loads, open("a&b.jsonl")) if "event" not in o]
assert rates[:4] == [0.001] * 4 and 1e-4 < rates[4] < 1e-3 and abs(rates[5] - 1e-4) < 1e-12, rates'
cp 'a&b.jsonl' whole.jsonl
printf '{"step":7,"lo' >>'a&b.jsonl'
tessera "${run[@]}" --metrics 'a&b.jsonl' --tensorboard board --lr-schedule wsd --lr-decay-steps 2 \
  --resume saved/step-00000003
lacks "$out" '^resumed: --(lr|tensorboard)'
sed 12d 'a&b.jsonl' >mended.jsonl
same <(steps whole.jsonl 4) <(steps mended.jsonl 4 | tail -n +4)
tessera plot 'a&b.jsonl' whole.jsonl --out two.svg
contains "$err" 'a&b.jsonl:12: is no line of a metrics file, or a part of one; left out'
same <(points two.svg) <(printf '6 6 6 6 6 6\n6\n')
[ "$(ls board | grep -c '^events.out.tfevents.')" -eq 2 ] || fail "board holds $(ls board)"

echo "== what cannot be drawn"
: >empty.jsonl
expect_error 'give metrics files: tessera plot' "$program" plot
expect_error 'plot: none.jsonl: cannot be read: No such file' "$program" plot none.jsonl
expect_error 'plot: empty.jsonl holds no step' "$program" plot whole.jsonl empty.jsonl
expect_error 'out no/where.svg: cannot be written: No such file' "$program" plot whole.jsonl --out no/where.svg
expect_error 'out /dev/full: cannot be written .is the disk full' "$program" plot whole.jsonl --out /dev/full
ln -s whole.jsonl link.svg
cp whole.jsonl before
for out_file in whole.jsonl ./whole.jsonl link.svg; do
  expect_error 'is whole.jsonl, which is to be drawn; give the picture a name of its own' "$program" plot \
    mended.jsonl whole.jsonl --out "$out_file"
done
same before whole.jsonl
