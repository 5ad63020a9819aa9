# SPDX-License-Identifier: Apache-2.0
# Ranks of `tessera --comm nccl` that are processes, on the doubles of CUDA and NCCL. `source` it with the path of
# tests_cuda_host_program as $1; then there are tests/support/program.sh's functions too. What rank R said is in R.out and
# R.err, what the doubles report of it in R.report (program/machine.cpp).
# shellcheck source=tests/support/program.sh
source "$(dirname "${BASH_SOURCE[0]}")/../../support/program.sh"
limit=${TESSERA_TEST_LIMIT:-300}  # seconds of one run, whose kernels are emulated
processes=()  # of the job that start_ranks began, by rank
statuses=()   # of the job that wait_for_ranks saw end, by rank
trap 'for one in "${processes[@]}"; do kill -KILL "$one" 2>/dev/null || true; done; rm -rf "$folder"' EXIT

free_port() { python3 -c '
import socket
with socket.socket() as found:
    found.bind(("127.0.0.1", 0))
    print(found.getsockname()[1])'; }

# start_ranks RANKS ARG...: `tessera ARG...` on every rank as torchrun starts it. Array `plant` holds more: VARIABLE=VALUE
# of their environment (an empty one counts as none), --flag=VALUE; with RANK: before it, of one rank.
plant=()
start_ranks() {
  local ranks=$1 rank port one
  shift
  port=$(free_port)
  rm -rf doubles && mkdir doubles
  processes=()
  for ((rank = 0; rank < ranks; ++rank)); do
    local variables=(RANK=$rank WORLD_SIZE="$ranks" LOCAL_RANK=$rank LOCAL_WORLD_SIZE="$ranks" MASTER_ADDR=127.0.0.1
      MASTER_PORT="$port" TESSERA_DOUBLE_GPUS="$ranks" TESSERA_DOUBLE_FOLDER="$PWD/doubles"
      TESSERA_DOUBLE_REPORT="$PWD/$rank.report")
    local more=()
    for one in "${plant[@]}"; do
      case $one in
        $rank:*) one=${one#*:} ;;
        [0-9]:*) continue ;;
      esac
      case $one in
        --*) more+=("$one") ;;
        *) variables+=("$one") ;;
      esac
    done
    rm -f $rank.report
    env "${variables[@]}" "$program" "$@" "${more[@]}" >$rank.out 2>$rank.err &
    processes[rank]=$!
  done
}

# wait_for_ranks: they have all ended within $limit seconds, and broken no rule of CUDA or NCCL.
wait_for_ranks() {
  local begin=$SECONDS rank
  statuses=()
  for rank in "${!processes[@]}"; do
    while kill -0 "${processes[$rank]}" 2>/dev/null; do
      [ $((SECONDS - begin)) -lt "$limit" ] || ranks_fail "rank $rank hangs"
      sleep 0.05
    done
    statuses[rank]=0
    wait "${processes[$rank]}" 2>/dev/null || statuses[rank]=$?
  done
  processes=()
  ! grep -h '^double:' ./*.err >"$err" || ranks_fail "a rule is broken"
}

ranks_fail() {
  tail -n 5 ./*.out ./*.err >"$out" 2>&1 || true
  fail "$*"
}

# on_ranks RANKS ARG...: all end with status 0, and give everything back to CUDA and NCCL.
on_ranks() {
  start_ranks "$@"
  wait_for_ranks
  [[ "${statuses[*]}" =~ ^(0 ?)+$ ]] || ranks_fail "statuses ${statuses[*]}: ${*:2}"
  ! grep -h '^left' ./*.report >"$err" || ranks_fail "something is left: ${*:2}"
}

# end_ranks STATUSES PATTERN...: the job that was started ends with those, one for each rank, as does one sentence on
# stderr; what ranks do not lose by a signal goes back to CUDA and NCCL.
end_ranks() {
  local wanted=$1 rank
  shift
  wait_for_ranks
  [ "${statuses[*]}" = "$wanted" ] || ranks_fail "statuses ${statuses[*]} instead of $wanted"
  for ((rank = 0; rank < ${#statuses[@]}; ++rank)); do
    [ "${statuses[$rank]}" -lt 128 ] || continue  # killed, or it saved and said so on stdout
    [ "$(wc -l <$rank.err)" -eq 1 ] || ranks_fail "rank $rank: not one line on stderr"
    grep -Eq -- "$1" $rank.err || ranks_fail "rank $rank: no /$1/"
    [ $# -eq 1 ] || shift
  done
  ! grep -h '^left' ./*.report >"$err" || ranks_fail "something is left"
}

# reported RANK KEY...: the number behind it.
reported() { sed -n "s/^${*:2} //p" "$1.report"; }
