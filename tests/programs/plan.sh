#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `tessera plan`: bytes of the dry run, collectives of a run, a step in virtual time; what a cluster cannot be, a sentence each.
set -euo pipefail
source "$(dirname "$0")/../support/program.sh"

text 3000 text.txt
model=(--model tiny --layers 3 --seq-len 33 --batch-size 12 --threads 1)

# cluster NAME [KEY=VALUE]...: the file of docs/plan.md, of two ranks of a CPU, with other values; KEY= leaves one out.
cluster() {
  local file=$1 change
  cp "$golden/../docs/two.toml" "$file"
  for change in "${@:2}"; do
    sed -i "/^${change%%=*} =/d" "$file"
    [ -z "${change#*=}" ] || echo "${change%%=*} = ${change#*=}" >>"$file"
  done
}
plan() { tessera plan "${model[@]}" "$@"; }
value() { python3 -c "
import json, sys
value = json.load(open(sys.argv[1]))
for key in sys.argv[2].split('.'): value = value[key]
print(value)" "$out" "$1"; }

echo "== known clusters answer from an empty folder"
for name in epyc xeon; do
  plan --cluster $name
  contains "$out" "^fsdp2 / threads / bf16 on $name, 2 ranks in 1 node, 1 micro-batch of 6 x 33 tokens$"
  contains "$out" '^it fits: needs .* per rank; .*GiB are available \(.*GiB left\)$'
done
tessera stacks
cp "$out" stacks
has() { grep -q -- "--comm $1 --precision bf16\$" stacks; }  # COMM
plan --cluster epyc --ranks 4
contains "$out" '^fsdp2 / mpi / bf16 on epyc, 4 ranks in 2 nodes, '
contains "$out" '^  network +[0-9.]+ [KM]iB into a node, '
plan --cluster h100 --ranks 2
contains "$out" '^fsdp2 / nccl / bf16 on h100, 2 ranks in 1 node, '
[ "$(listing)" = "$(printf '.\n./stacks\n./text.txt')" ] || fail "left files: $(listing)"

echo "== the bytes are those of the dry run"
cluster two.toml
for more in "--sharding fsdp2 --precision bf16" "--sharding zero3 --precision fp32 --tiling tokens:7" \
  "--sharding replicated --precision fp32 --grad-accum 2" "--sharding fsdp2 --precision bf16 --recompute --offload inputs"; do
  # shellcheck disable=SC2206
  flags=($more)
  plan --cluster two.toml "${flags[@]}"
  grep -E '^  (weights|gathered|gradients|optimizer|activations|scratch|peak) +[0-9]+ |^beside it, in host' "$out" >planned
  tessera train --dry-run "${model[@]}" --comm threads:2 "${flags[@]}"
  grep -E '^  [a-z]+ +[0-9]+ |^beside it, in host' "$out" | same - planned
done
contains planned '^beside it, in host memory: [0-9]+ bytes '
if has mpi; then  # whose ranks hold memory for sums
  plan --cluster epyc --ranks 4 --comm mpi
  grep -E '^  (weights|gathered|gradients|optimizer|activations|scratch|peak) +[0-9]+ ' "$out" >planned
  tessera train --dry-run --ranks 4 "${model[@]}" --comm mpi
  grep -E '^  [a-z]+ +[0-9]+ ' "$out" | same - planned
fi

echo "== every stack can be planned, and how to compile it is told"
lacking='^this program has no such stack: '
while read -r sharding precision offload words; do
  for on in epyc h100; do
    plan --cluster $on --ranks 4 --sharding "$sharding" --precision "$precision" --offload "$offload"
    contains "$out" '^it fits: '
    [ -z "$words" ] || contains "$out" "$lacking$words"
  done
done <<'END'
fsdp2 fp32 none
zero1 fp32 optimizer CMake adds it by -DTESSERA_STACKS="default;zero1_offload/(mpi|nccl)/fp32"$
replicated bf16:wire=bf16 none CMake adds it by -DTESSERA_STACKS="default;replicated/(mpi|nccl)/bf16_wire"$
hybrid:2:full bf16:wire=bf16 optimizer compile its C\+\+$
END
contains "$out" '^  using Stack = fsdp::Stack<fsdp::Offload<fsdp::HybridShard<'
plan --cluster two.toml
lacks "$out" "$lacking"

echo "== the collectives are those of a run's step"
for more in "--sharding fsdp2" "--sharding zero3 --grad-accum 3" "--sharding zero1 --grad-accum 2" "--sharding replicated" \
  "--sharding fsdp2:pieces=4" "--sharding fsdp2 --sequence ulysses:2 --grad-accum 2"; do
  # shellcheck disable=SC2206
  flags=($more)
  [[ $more != *ulysses* ]] || flags+=(--heads 2 --kv-heads 2)
  plan --cluster two.toml --json "${flags[@]}"
  cp "$out" plan.json
  rm -f metrics.jsonl
  tessera train --data text.txt --steps 2 --metrics metrics.jsonl "${model[@]}" --comm threads:2 "${flags[@]}"
  python3 - <<'PY'
import json
planned = json.load(open("plan.json"))["traffic"]
steps = [line for line in map(json.loads, open("metrics.jsonl")) if "grad_norm" in line]
assert len(steps) == 2 and planned
for step in steps:
    assert step["traffic"] == planned, (step["traffic"], planned)
PY
done

echo "== what does not fit, and by how much"
plan --cluster two.toml --json
peak=$(value device_bytes.needed)
[ "$peak" -eq "$(value peak_bytes)" ] || fail "$peak bytes"
cluster small.toml "memory=$((peak > 1048576 ? peak - 1024 : 1048576))"
short='^tessera: plan: this step does not fit: a rank needs .*, 1.00 KiB too little; --fit searches for flags that fit$'
expect_error "$short" "$program" plan "${model[@]}" --cluster small.toml
contains "$out" '^it does not fit: needs .* per rank; .* \(1.00 KiB short\)$'
contains "$out" '^in addition, for the runtime: '
expect_error "$short" "$program" plan "${model[@]}" --cluster small.toml --json
[ "$(value fits) $(value device_bytes.left)" = "False -1024" ] || fail "$(cat "$out")"

echo "== attention of documents is counted as a run counts it"
cluster two.toml attention=1e9
packed=("${model[@]}" --precision fp32 --document-separator 10)
tessera plan --cluster two.toml "${packed[@]}"
contains "$out" '^  documents   attention of whole windows; documents take less \(--document-length\)$'
tessera plan --cluster two.toml "${packed[@]}" --document-length 3 --json
counted=$(value model_flops)
python3 -c "print('ab\n' * 1200, end='')" >short.txt
rm -f metrics.jsonl
tessera train --cluster two.toml --data short.txt --steps 1 --metrics metrics.jsonl --validation-fraction 0 "${packed[@]}" --comm threads:2
python3 - "$counted" <<'PY'
import json, sys
lines = [json.loads(line) for line in open("metrics.jsonl")]
step = next(line for line in lines if "tflops" in line)
ran, planned = step["tflops"] * 1e12 * step["step_seconds"], float(sys.argv[1])
assert abs(ran / planned - 1) < 0.01, (ran, planned)
PY
tessera plan --cluster two.toml "${packed[@]}" --document-length 3 --json
python3 - "$(value step_seconds)" <<'PY'
import json, sys
line = json.loads(open("metrics.jsonl").readline())
assert abs(line["planned_step_seconds"] / float(sys.argv[1]) - 1) < 0.01, (line, sys.argv)
PY
short=$(value step_seconds)
plan --cluster two.toml --precision fp32 --json
python3 -c "import sys; assert float(sys.argv[1]) < 0.7 * float(sys.argv[2]), sys.argv" "$short" "$(value step_seconds)"
cluster two.toml

echo "== a step in virtual time, the same every time, beside a trace with a run's names"
plan --cluster two.toml --json
cp "$out" first
plan --cluster two.toml --json --trace virtual.json
same first "$out"
python3 - <<'PY'
import json
plan = json.load(open("first"))
parts = plan["compute_seconds"] + plan["exposed_collective_seconds"] + plan["exposed_copy_seconds"]
assert abs(parts - plan["step_seconds"]) < 1e-9 * parts, plan
assert abs(plan["tokens"] / plan["step_seconds"] - plan["tokens_per_second"]) < 1e-6 * plan["tokens_per_second"]
assert abs(plan["model_flops"] / 2 / plan["step_seconds"] / plan["peak_flops"] - plan["mfu"]) < 1e-9
PY
rm -f run.json
tessera train --data text.txt --steps 1 --trace run.json "${model[@]}" --comm threads:2
python3 - <<'PY'
import json
def names(path):
    return {event["name"] for event in json.load(open(path))["traceEvents"] if event["ph"] == "X" and event["cat"] in ("compute", "comm")}
def activations(path):
    events = [event["args"]["activations"] for event in json.load(open(path))["traceEvents"] if event["ph"] == "C"]
    return [bytes for at, bytes in enumerate(events) if at == 0 or bytes != events[at - 1]]
held = activations("virtual.json")
assert len(held) > 6 and held == activations("run.json")[:len(held)], (held, activations("run.json"))
assert max(held) <= json.load(open("first"))["memory"]["activations"]
virtual, real = names("virtual.json"), names("run.json")
works = {name for name in real if name.split()[0] in ("gather", "forward", "loss", "backward", "reduce")}
assert works and works <= virtual, works - virtual
assert {name for name in virtual if " " in name} <= real, virtual - real
PY

for trace in virtual run; do
  python3 "$golden/../../bench/step_figure.py" $trace.json $trace.svg "of $trace.json"
  contains $trace.svg '>of (virtual|run).json</text>$'
  contains $trace.svg '<polygon '
done

echo "== of several processes one prints and writes"
plan --cluster two.toml
cp "$out" one
rm -f virtual.json
RANK=1 WORLD_SIZE=2 tessera plan "${model[@]}" --cluster two.toml --trace virtual.json
[ ! -s "$out" ] && [ ! -e virtual.json ] || fail "the second process prints: $(cat "$out")"
RANK=0 WORLD_SIZE=2 tessera plan "${model[@]}" --cluster two.toml
same one "$out"
if has mpi; then
  timeout "$limit" mpirun --oversubscribe -np 2 "$program" plan "${model[@]}" --cluster two.toml >"$out"
  same one "$out"
fi

echo "== what a cluster cannot be"
no() { expect_error "$1" "$program" plan "${model[@]}" "${@:2}"; }
no '--cluster is missing; give a TOML file, or a name: h100, ' --json
no '--cluster h10: no such file, and no cluster has this name; did you mean .h100' --cluster h10
for key in device ranks ranks_per_node memory matmul_bf16 node_bandwidth collectives_have_queues; do
  cluster bad.toml "$key="
  no "--cluster bad.toml: $key is missing; give it: " --cluster bad.toml
done
cluster bad.toml network_bandwidth= network_latency=
plan --cluster bad.toml
no '--cluster bad.toml: network_latency is missing' --cluster bad.toml --ranks 4
while read -r change words; do
  cluster bad.toml "$change"
  no "--cluster bad.toml: $words" --cluster bad.toml
done <<'END'
network_bandwidth=0 network_bandwidth is 0, which no machine has; give at least
matmul_fp32=1e30 matmul_fp32 is 1e\+30, which no machine has
node_latency=-1 node_latency is -1, which no machine has
memory=-4 memory is -4, which no machine has
attention=nan attention 'nan' is not a finite number
host_bandwidth=inf host_bandwidth 'inf' is not a finite number
ranks=3 ranks is 3, which do not fill nodes of 2
device="tpu" device is 'tpu'; give "cuda" or "cpu"
peak_bf16=1e11 matmul_bf16 is 2e\+11, above peak_bf16
attention=2.2e11 attention is 2.2e\+11, above peak_bf16
matmul_bf16_small=2.2e11 matmul_bf16_small is 2.2e\+11, above peak_bf16
matmul_fp32_medium=-1 matmul_fp32_medium is -1, which no machine has; give at least .* or 0 where it is as that of large ones
beside_collectives=0 beside_collectives is 0, which no machine has; give at least 0.01 and at most 1 of the speed alone
threads=0 threads is 0, which no machine has
bandwidth=7 unknown key 'bandwidth'; did you mean .*node_bandwidth
memory="much" memory is the text 'much'; give a number
memory="8000000000" memory is the text '8000000000'; give a number
device=["cpu"] device takes one value and is a list
collectives_have_queues=1 collectives_have_queues '1' is neither true nor false
ranks_per_node=[2] ranks_per_node takes one value and is a list; give the value without brackets
node_latency={} node_latency: must be text, a number
END
echo 'ranks = = 2' >bad.toml
no '^tessera: --cluster bad.toml: .* at line 1' --cluster bad.toml
no '--cluster epyc: ranks is 3, which do not fill nodes of 2' --cluster epyc --ranks 3
no 'computes on cpu, and this stack on cuda; take --comm threads or mpi' --cluster epyc --comm nccl
no 'computes on cuda, and this stack on cpu; take --comm nccl' --cluster h100 --comm threads:8
no '--memory is for runs' --cluster epyc --memory 4GiB
no '--dry-run is for train' --cluster epyc --dry-run
no 'threads has all ranks in one process, and these are in 2 nodes; take --comm mpi' --cluster epyc --ranks 4 --comm threads:4
no '--comm threads:3 states 3 ranks, and the plan is of the 2 of --cluster two.toml; leave --comm out, or give --ranks 3$' \
  --cluster two.toml --comm threads:3
no '--comm self states 1 rank, and the plan is of the 4 of --cluster two.toml' --cluster two.toml --comm self --ranks 4
if has mpi; then
  WORLD_SIZE=3 RANK=0 no '--comm mpi was launched with 3 ranks, and the plan is of the 2 of' --cluster two.toml --comm mpi
  plan --cluster two.toml --comm mpi
fi
plan --cluster two.toml --comm threads:2
same one "$out"
cluster bad.toml ranks=8 ranks_per_node=8
no 'cannot be shared by' --cluster bad.toml

no '--document-length 3 is for data with documents' --cluster two.toml --document-length 3
no '--document-length 34 is more than the 33 tokens of a sequence' --cluster two.toml --document-length 34 --document-separator 10
no '--trace two.toml is the file of --cluster; give it a file of its own' --cluster two.toml --trace two.toml
printf 'seed = 1\n' >run.toml
no '--trace run.toml is the file of --config; give it a file of its own' --cluster two.toml --config run.toml --trace run.toml
no '--trace text.txt is a file of --data; give it a file of its own' --cluster two.toml --data text.txt --trace text.txt

echo "== a file whose name is no text, and steps of more FLOPs than integers hold"
cp two.toml $'\xff.toml'
plan --cluster $'\xff.toml' --json
python3 -c "import json, sys; json.load(open(sys.argv[1]))" "$out"
cluster many.toml ranks=16384 ranks_per_node=16384 memory=80_000_000_000
most=16777216
tessera plan --cluster many.toml --json --model tiny --threads 1 --batch-size 65536 --grad-accum 4 --seq-len $most \
  --max-position-embeddings $most --tiling tokens:65536
python3 -c "
import json, sys
assert json.load(open(sys.argv[1]))['mfu'] > 0.1" "$out"

echo "== attention in as many parts as the budget asks for, and at most as many as there are heads"
tessera plan --cluster two.toml --model tiny --heads 4 --kv-heads 4 --batch-size 2 --sequence ulysses:2
! grep -q 'parts' "$out" || fail "parts without a tiling"
tessera plan --cluster two.toml --model tiny --heads 32 --kv-heads 32 --head-dim 256 --seq-len 512 --batch-size 2 --sequence ulysses:2 --tiling budget:64KiB
contains "$out" '^  attention +in 16 parts$'

echo "== thousands of ranks take seconds"
cluster many.toml ranks=16384 ranks_per_node=16384 memory=80_000_000_000
large=(--hidden 4096 --layers 32 --heads 32 --kv-heads 8 --intermediate 14336 --vocab 128256 --seq-len 8192 --threads 1)
timeout 60 "$program" plan "${large[@]}" --batch-size 16384 --cluster many.toml >"$out" 2>"$err" || fail "16384 ranks"
contains "$out" ', 16384 ranks in 1 node, '
timeout 60 "$program" plan --fit "${large[@]}" --batch-size 16384 --cluster many.toml >"$out" 2>"$err" || fail "16384 ranks with --fit"
contains "$out" '^1  --sharding '

echo "== --fit finds what asking for every way finds"
fit() { plan --fit "$@"; }
cluster two.toml
fit --cluster two.toml --json
cp "$out" fit.json
python3 - "$program" "${model[@]}" <<'PY'
import itertools, json, shlex, subprocess, sys
program, model = sys.argv[1], sys.argv[2:]
def ask(flags, cluster="two.toml"):
    run = subprocess.run([program, "plan", *model, "--cluster", cluster, "--json", *flags], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)
def found(cluster):
    run = subprocess.run([program, "plan", *model, "--cluster", cluster, "--json", "--fit"], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)
best = found("two.toml")["best"]
assert len(best) == 3 and best == json.load(open("fit.json"))["best"]
for way in best:
    assert ask(shlex.split(way["flags"])) == way["estimate"], way["flags"]

# memory for which something has to be given up: halfway between the fastest way's need and the least of all
ways = {}
for sharding, micro_batches, kept in itertools.product(
        ["fsdp2", "zero3", "fsdp2:no-reshard", "zero2", "zero1", "replicated"], ["1", "2", "6"], [[], ["--recompute"]]):
    flags = ["--sharding", sharding, "--grad-accum", micro_batches, *kept]
    ways[" ".join(flags)] = ask(flags)
needs = sorted(way["device_bytes"]["needed"] for way in ways.values())
memory = (min(needs) + best[0]["estimate"]["device_bytes"]["needed"]) // 2
text = open("two.toml").read().splitlines()
open("tight.toml", "w").write("\n".join(f"memory = {memory}" if line.startswith("memory ") else line for line in text) + "\n")
tight = found("tight.toml")
fitting = [way["step_seconds"] for way in ways.values() if way["device_bytes"]["needed"] <= memory]
first = tight["best"][0]["estimate"]
assert first["fits"] and first["step_seconds"] <= min(fitting) * (1 + 1e-9), (tight["best"][0]["flags"], min(fitting))
assert first["step_seconds"] > best[0]["estimate"]["step_seconds"]
assert tight["estimated"] < tight["ways"] / 2, (tight["estimated"], tight["ways"])
assert all(other["why"] for other in tight["others"])
PY
fit --cluster tight.toml
contains "$out" '^searched [0-9]+ configurations for tight.toml \([0-9]+ estimated\); the fastest that fit:$'
contains "$out" '^1  --sharding '
contains "$out" 'using Stack = fsdp::Stack<'
contains "$out" '^it fits: needs '

echo "== on GPUs the best is started by torchrun, with all flags of the plan"
tessera plan --fit --cluster h100 --ranks 16 --model tiny --seq-len 33 --batch-size 16 --freeze '*norm*'
contains "$out" '^  cmake --preset release -DTESSERA_CUDA_ARCHITECTURES=90a'
contains "$out" "^  torchrun --nnodes 2 --rdzv-backend c10d --rdzv-endpoint HOST:29500 --nproc-per-node 8 --no-python tessera train --comm nccl --sharding .* --batch-size 16.* --freeze '\*norm\*'.* --data PATH$"

echo "== what flags give stays, and what fits nowhere is told"
fit --cluster two.toml --sharding zero2 --recompute --json
python3 - "$out" <<'PY'
import json, sys
best = json.load(open(sys.argv[1]))["best"]
assert best and all("--sharding zero2" in way["flags"] and "--recompute" in way["flags"] for way in best), best
PY
cluster small.toml memory=1048576
no '--fit: none of [0-9]+ ways fits; the one that takes the least, --sharding .*, needs .*MiB of each rank, which has 1.00 MiB; take more ranks' --cluster small.toml --fit
expect_error '--cluster says what to expect of a run, and --dry-run starts none; call tessera plan --cluster two.toml' \
  "$program" train --dry-run --model tiny --cluster two.toml
fit --cluster two.toml --sharding zero2 --grad-accum 2
lacks "$out" '^others$'
no '--trace is of one step, and --fit looks for several' --cluster two.toml --fit --trace trace.json
no '--fit: no way can be: sequence: 6 heads of attention cannot be divided' --cluster epyc --ranks 16 --fit

echo "== bench/published.py reads its figures, and holds the first two against plans"
if python3 -c 'import tomllib' 2>/dev/null; then  # Python 3.11
  published=$golden/../../bench/published.py
  python3 -B "$published" --check >said
  contains said '^[0-9]+ figures of [0-9]+ sources$'
  if has nccl; then
    python3 -B "$published" "$program" --first 2 >said
    contains said '^  qwen2.5-0.5b +1 +1024 .* fitted$'
    contains said '^  qwen2.5-1.5b +1 +1024 .* held out$'
    contains said '"held_out": ."figures": 1, "within_15_percent": 1, '
  fi
fi

echo "== docs/plan.md shows what is printed"
if has nccl; then  # without it, that the program lacks the stack is told besides
  command=$(sed -n 's/^tessera \(plan --cluster h100 .*\)/\1/p' "$golden/../../docs/plan.md")
  # shellcheck disable=SC2086
  tessera $command
  same "$golden/../docs/plan_h100.txt" "$out"
  command=$(sed -n 's/^tessera \(plan --fit --cluster h100 .*\)/\1/p' "$golden/../../docs/plan.md")
  # shellcheck disable=SC2086
  tessera $command
  same "$golden/../docs/fit_h100.txt" "$out"
fi
