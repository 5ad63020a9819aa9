# SPDX-License-Identifier: Apache-2.0
# For bench/gpu.sh, after report.sh: steps with a limit each, and those that several modes have. SLOW=N: limits of steps are N
# times as long, where kernels are emulated.

left() { echo $((begin + limit - 10 - SECONDS > 1 ? begin + limit - 10 - SECONDS : 1)); }
at_most() { echo $(($1 < $(left) - 5 ? $1 : $(left) - 5)); } # SECONDS: as many, or what is left

# NAME LIMIT COMMAND...: passed, FAILED, SKIPPED with the first reason that the command prints, or LEFT OUT.
step() {
  local name=$1 most=$(($2 * ${SLOW:-1})) start=$SECONDS log result code=0 line left sampled
  shift 2
  left=$(left) sampled=$(wc -l <"$report_folder/samples")
  [[ $name =~ $pattern ]] || return 0
  if [ "$left" -le $((most / 3)) ]; then
    row "$name" "LEFT OUT: $left s are left, and it may take $most s"
    return
  fi
  log=$(mktemp)
  timeout -k 5 $((most < left ? most : left)) "$@" 2>&1 | tee "$log" || code=$?
  case $code in
    0) result=passed ;;
    124 | 137) result="FAILED (out of time)" ;;
    *) result="FAILED (status $code)" ;;
  esac
  if [ "$code" -eq 0 ] && grep -qE 'SKIPPED|"skipped"' "$log" && ! grep -qE '^\[  PASSED  \] [1-9]' "$log"; then
    result="SKIPPED: $(grep -m1 -oE 'no device[^"]*|the driver is made for[^"]*|device [0-9]+[,a-z ][^"]*' "$log" || echo "see above")"
  elif [ "$code" -eq 0 ] && grep -qE '^\[==========\] (Running )?0 (tests|cases)' "$log"; then
    result="FAILED (no test has such a name)"
  fi
  row "$name" "$result, $((SECONDS - start)) s" $((SECONDS - start)) "$(clocks_since "$sampled")"
  while IFS= read -r line; do results+=("$line"); done < <(rows_of "$log")
  case $result in FAILED*)
    printf '{"name": %s, "end_of_log": %s}\n' "$(printf %s "$name" | json)" "$(tail -n 60 "$log" | cut -c 1-400 | tail -c 8000 | json)" >>"$report_folder/failures" ;;
  esac
  rm -f "$log"
  write_report "$report"
}
finish() {
  if [ ${#results[@]} -eq 0 ]; then
    echo "bench/gpu.sh: no step has a name that matches '$pattern'" >&2
    exit 2
  fi
  compare_goals
  echo "----"
  printf '%s\n' "${results[@]}"
  echo "---- goals"
  show_goals
  write_report "$report"
  echo "---- all of this, to send home: $report"
  exit "$status"
}

# On the tensor cores and not, of sizes that divide by nothing, and of a launch that asks for shared memory.
checked='CudaAttention.OnTensorCores*:CudaAttention.Windows*:CudaVocabulary.Embedding*:CudaVocabulary.CrossEntropyAdds*:Cuda.RmsNormOfLongRows*'
sanitize_with() { # TOOL NAME COMMAND...
  if ! command -v compute-sanitizer >/dev/null; then
    skip "$1, $2" "no compute-sanitizer in PATH"
  else
    step "$1, $2" 60 compute-sanitizer --tool "$1" --error-exitcode 1 "${@:3}"
  fi
}
sanitize() { # TOOL...
  local tool
  for tool in "$@"; do
    sanitize_with "$tool" "attention, odd sizes, 12288 columns" "$programs/tests_cuda" --gtest_filter="$checked"
  done
}
tests_of_kernels() { # SECONDS
  step "operations" "$1" "$programs/tests_cuda"
  step "plain kernels" "$1" env TESSERA_CUDA_PLAIN=1 "$programs/tests_cuda" --gtest_filter='CudaAttention.*'
}
killed_runs() {
  step "a run that fails with graphs" 60 bash bench/gpu/killed.sh "$programs/bench_killed" error
  step "a run whose peer is silent, with graphs" 60 bash bench/gpu/killed.sh "$programs/bench_killed" silence
  step "a run that is ended with graphs" 60 bash bench/gpu/killed.sh "$programs/bench_killed" signal
}
rival() {
  if python3 -c 'import torch' 2>/dev/null; then
    step "PyTorch" 60 python3 bench/gpu/torch_rows.py "$(at_most 60)"
  else
    skip "PyTorch" "python3 has no torch"
  fi
}
skip() { [[ ! $1 =~ $pattern ]] || row "$1" "SKIPPED: $2"; } # NAME REASON
