# SPDX-License-Identifier: Apache-2.0
# What the scripts of tests/programs share. `source` it with the program's path as $1: it changes into an empty folder,
# which is removed at the end, and sets `program` and `golden`. Every run is under `timeout`.
program=$(realpath "$1")
golden=$(realpath "${TESSERA_TEST_DATA:-$(dirname "${BASH_SOURCE[0]}")/..}")/golden
export OMP_WAIT_POLICY=passive    # tests share cores: threads that wait should not spin
limit=${TESSERA_TEST_LIMIT:-120}  # seconds of one run

folder=$(mktemp -d "$PWD/run.XXXXXX")  # cwd: where commands run; out, err: what the last one printed
run=                     # a process in the background, from start_run to run_ends
trap '[ -z "$run" ] || kill -KILL "$run" 2>/dev/null || true; rm -rf "$folder"' EXIT
mkdir "$folder/cwd"
cd "$folder/cwd"
out=$folder/out
err=$folder/err

fail() {
  echo "FAILED: $*"
  echo "--- stdout"; tail -n 20 "$out" 2>/dev/null || true
  echo "--- stderr"; tail -n 20 "$err" 2>/dev/null || true
  exit 1
}

# tessera ARG...: must end with status 0; its output is in $out and $err.
tessera() {
  local status=0
  timeout "$limit" "$program" "$@" >"$out" 2>"$err" || status=$?
  [ "$status" -eq 0 ] || fail "status $status: tessera $*"
}

contains() { grep -Eq -- "$2" "$1" || fail "no /$2/ in $1"; }  # FILE PATTERN
lacks() { ! grep -Eq -- "$2" "$1" || fail "/$2/ in $1"; }
same() { cmp "$1" "$2" || fail "$1 and $2 differ"; }

# The instruction sets of TESSERA_ISA that this x86-64 processor has, a line each, the least first.
instruction_sets() {
  echo baseline
  ! grep -qw avx2 /proc/cpuinfo || echo avx2
  ! grep -qw avx512dq /proc/cpuinfo || echo avx512
  ! grep -qw avx512_bf16 /proc/cpuinfo || echo avx512_bf16
}

listing() { find . | LC_ALL=C sort; }

# gone PID: whether a process ends within 10 s; a launcher that has ended may have killed it a moment ago.
gone() {
  local tries
  for tries in $(seq 100); do
    grep -qs '^State:.[^ZX]' "/proc/$1/status" || return 0
    sleep 0.1
  done
  return 1
}

# refused PATTERN COMMAND...: status 2, a reason on stderr that matches, nothing new on disk.
refused() { ends_with 2 "$@"; }

# ends_with STATUS PATTERN COMMAND...: the same with another status.
ends_with() {
  local wanted=$1 pattern=$2 status=0 before
  shift 2
  before=$(listing)
  timeout "$limit" "$@" >"$out" 2>"$err" || status=$?
  [ "$status" -eq "$wanted" ] || fail "status $status instead of $wanted: $*"
  contains "$err" "$pattern"
  [ "$before" = "$(listing)" ] || fail "left files behind: $* $(diff <(echo "$before") <(listing))"
}

# expect_error PATTERN COMMAND...: refused, in one line.
expect_error() { expect_end 2 "$@"; }

# expect_end STATUS PATTERN COMMAND...: the same with another status.
expect_end() {
  ends_with "$@"
  [ "$(wc -l <"$err")" -eq 1 ] || fail "more than one line on stderr: ${*:3}"
}

# start_run COMMAND...: a long training run in the background; returns when it has made steps, which it writes to
# metrics.jsonl.
start_run() {
  rm -f metrics.jsonl
  "$@" --metrics metrics.jsonl >"$out" 2>"$err" &
  run=$!
  for _ in $(seq 300); do
    [ -e metrics.jsonl ] && [ "$(grep -c '"loss"' metrics.jsonl)" -ge 3 ] && return 0
    kill -0 $run 2>/dev/null || fail "ended by itself"
    sleep 0.1
  done
  fail "made no step"
}

# run_ends STATUS: it does, with that.
run_ends() {
  local status=0
  for _ in $(seq 300); do kill -0 $run 2>/dev/null || break; sleep 0.1; done
  ! kill -0 $run 2>/dev/null || fail "still runs"
  wait $run || status=$?
  run=
  [ "$status" -eq "$1" ] || fail "status $status instead of $1"
}

# text BYTES FILE: repeatable text.
text() { python3 -c "
import sys
words = 'the rank holds a shard of every weight and gathers the next while it computes this one'.split()
state, made, length = 1, [], 0
while length < int(sys.argv[1]):
    state = state * 6364136223846793005 + 1442695040888963407 & (1 << 64) - 1
    made.append(words[state >> 33 & 15] + (' ' if state >> 40 & 7 else '.\n'))
    length += len(made[-1])
open(sys.argv[2], 'w').write(''.join(made)[:int(sys.argv[1])])" "$1" "$2"; }

# steps METRICS [FIRST]: "step loss grad_norm lr" of each step from FIRST on, as printed.
steps() { python3 -c "
import json, sys
for line in open(sys.argv[1]):
    record = json.loads(line, parse_float=str)
    if 'event' not in record and record['step'] >= int(sys.argv[2]):
        print(record['step'], record['loss'], record['grad_norm'], record['lr'])" "$1" "${2:-1}"; }

# summary METRICS KEY: a value of the last record.
summary() { python3 -c "
import json, sys
record = json.loads(open(sys.argv[1]).readlines()[-1])
assert record['event'] == 'summary', record
print(record[sys.argv[2]])" "$1" "$2"; }

# expected FOLDER TENSOR...: values of a golden folder's expected.safetensors, tensors side by side.
expected() { python3 -c "
import json, struct, sys
data = open(sys.argv[1] + '/expected.safetensors', 'rb').read()
length, = struct.unpack('<Q', data[:8])
header, body = json.loads(data[8:8 + length]), data[8 + length:]
columns = []
for name in sys.argv[2:]:
    begin, end = header[name]['data_offsets']
    columns.append(struct.unpack(f'<{(end - begin) // 8}d', body[begin:end]))
for row in zip(*columns): print(*(repr(value) for value in row))" "$@"; }

# close FILE FILE TOLERANCE: the numbers of both files, one after another, differ by no more than that, relatively.
close() { python3 -c "
import sys
a, b = ([float(word) for word in open(path).read().split()] for path in sys.argv[1:3])
assert len(a) == len(b) > 0, (len(a), len(b))
worst = max(abs(x - y) / max(abs(y), 1e-30) for x, y in zip(a, b))
assert worst <= float(sys.argv[3]), f'relative difference {worst}'" "$1" "$2" "$3" || fail "$1 and $2 are not close"; }

# falls METRICS: the mean loss of the last quarter of the steps is below that of the first.
falls() { python3 -c "
import json, sys
losses = [record['loss'] for record in map(json.loads, open(sys.argv[1])) if 'event' not in record]
part = max(len(losses) // 4, 1)
first, last = sum(losses[:part]) / part, sum(losses[-part:]) / part
assert last < first, (first, last)" "$1" || fail "the loss of $1 does not fall"; }
