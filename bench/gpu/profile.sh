#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Where the time of a program goes, as rows of JSON.
# usage: profile.sh timeline PROGRAM...    kernels, copies and gaps, by timeline.cpp
#        profile.sh counters PROGRAM...    Nsight Compute's counters of the kernels that are not matmuls or attention
set -euo pipefail
file=$(mktemp)
trap 'rm -f "$file"' EXIT
case $1 in
  timeline)
    # One size, without the parts, whose host waits after each event.
    BENCH_SEQUENCES=4 TIMELINE=$file CUDA_INJECTION64_PATH=$(dirname "$2")/libtessera_timeline.so "${@:2}" >&2
    [ -s "$file" ] || { echo "CUDA loaded no timeline into the program, or CUPTI gave no records" && exit 1; }
    cat "$file" ;;
  counters)
    ncu --csv --log-file "$file" --kernel-id '::regex:whole_rows|norm_|rotate_rows|for_elements|adamw:3' \
      --metrics sm__inst_executed.sum,sm__throughput.avg.pct_of_peak_sustained_elapsed,dram__throughput.avg.pct_of_peak_sustained_elapsed,gpu__time_duration.sum \
      "${@:2}" >&2 || { tail -n 20 "$file" && exit 1; }
    awk -F '","' '
      { gsub(/^"|"$/, "") }
      !columns { for (i = 1; i <= NF; ++i) column[$i] = i; columns = "Metric Name" in column ? NF : 0; next }
      NF == columns {
        kernel = substr($column["Kernel Name"], 1, 120); gsub(/["\\]/, "", kernel)
        value = $column["Metric Value"]; gsub(/,/, "", value)
        printf "{\"bench\": \"counters\", \"kernel\": \"%s\", \"metric\": \"%s\", \"unit\": \"%s\", \"value\": %.10g}\n", kernel, $column["Metric Name"], $column["Metric Unit"], value
      }' "$file" ;;
esac
