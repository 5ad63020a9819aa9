# SPDX-License-Identifier: Apache-2.0
# For bench/gpu.sh: results as they come, goals against what was measured, and one JSON file of all that.
# Bash, sed and awk only, since a machine with a GPU may have no Python. Source it; then report_begin FOLDER, with mode and
# architectures set.

results=() # lines of the table at the end
status=0

report_begin() { # FOLDER
  report_folder=$(mkdir -p "$1" && cd "$1" && pwd)
  rm -f "$report_folder"/*.jsonl
  : >"$report_folder/results" >"$report_folder/rows" >"$report_folder/goals" >"$report_folder/failures" >"$report_folder/samples"
  device=$(nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm,clocks.max.mem,power.limit,ecc.mode.current --format=csv 2>&1 || true)
  {
    printf '{\n  "tessera": %s,\n' "$({ cat revision 2>/dev/null || git describe --always --dirty 2>/dev/null; } | json)"
    printf '  "date": %s,\n  "mode": %s,\n  "architectures": %s,\n' "$(date -u +%FT%TZ | json)" "$(printf %s "$mode" | json)" "$(printf %s "$architectures" | json)"
    printf '  "device": %s,\n' "$(printf %s "$device" | json)"
    printf '  "toolkit": %s,\n' "$(nvcc --version 2>&1 | tail -n 2 | json)"
    printf '  "compiler": %s,\n' "$(first_line c++ --version | json)"
    printf '  "sanitizer": %s,\n' "$(first_line compute-sanitizer --version | json)"
    printf '  "system": %s,\n' "$(uname -srm | json)"
  } >"$report_folder/head"
}

json() { # text on stdin as a JSON string
  tr -d '\000-\010\013-\037' | sed 's/\\/\\\\/g; s/"/\\"/g; s/\t/  /g' | awk 'BEGIN { printf "\"" } NR > 1 { printf "\\n" } { printf "%s", $0 } END { printf "\"" }'
}
json_list() { # lines that are JSON: a list
  awk 'BEGIN { printf "[" } { printf "%s\n    %s", (NR > 1 ? "," : ""), $0 } END { printf "%s]", (NR > 0 ? "\n  " : "") }' "$1"
}

row() { # NAME RESULT [SECONDS [CLOCKS]]: a line now, and one of the table
  echo "== $1: $2"
  results+=("$1: $2")
  printf '{"name": %s, "result": %s, "seconds": %s, "clocks": %s}\n' "$(printf %s "$1" | json)" "$(printf %s "$2" | json)" \
    "${3:-0}" "$(printf %s "${4:-}" | json)" >>"$report_folder/results"
  case $2 in FAILED*) status=1 ;; esac
}

# What nvidia-smi sampled since LINE: SM clock, power, temperature, and the reasons for lower clocks.
clocks_since() { # LINE
  tail -n "+$(($1 + 1))" "$report_folder/samples" | awk -F ', ' '
    NF == 4 && $1 + 0 > 0 {
      if (n == 0 || $1 + 0 < low) low = $1 + 0
      if ($1 + 0 > high) high = $1 + 0
      if ($3 + 0 > hot) hot = $3 + 0
      power += $2; ++n
      if (!(($4) in seen)) { seen[$4] = 1; reasons = reasons " " $4 }
    }
    END { if (n) printf "%d to %d MHz, %.0f W, %d C, reasons%s", low, high, power / n, hot, reasons }'
}

# The rows of a bench, which are JSON objects, for the table: of each the name, the time and the ratios. A number that is none
# is null.
rows_of() { # LOG
  sed -nE '/^\{"bench": .*\}$/ { s/": -?(nan|inf)?([,}])/": null\2/g; p }' "$1" >>"$report_folder/rows" || true
  sed -nE 's/^\{"bench": "([^"]*)"(.*)\}$/\1\2/p' "$1" | awk -F ', "' '{
    line = "  " $1
    for (i = 2; i <= NF; ++i)
      if ($i ~ /^(library|seq|tiling|ms|ratio[a-z_]*|share[a-z_]*|left_out)"/) {
        gsub(/"/, "", $i)
        line = line "  " $i
      }
    if (line != "  " $1) print line
  }'
}

# What a GPU must show, by the beginning of a row's name: FIELD, its least (>=) or most (<=) value, and why.
# Of cuDNN: 0.35 of 388 and 539 TFLOP/s, which FlashAttention-3's authors measured on an H100 (causal, 16384 tokens).
# By card, within 5 %: an H100 as docs/measured.md has it; an H200 as planned with 720 TFLOP/s and 3.4 TB/s.
goals() {
  cat <<'END'
rms_norm 16384 x 4096 bf16|ratio_to_copy|>=|0.75|of the card's copies
rms_norm_backward|ratio_to_copy|>=|0.75|of the card's copies
swiglu|ratio_to_copy|>=|0.75|of the card's copies
swiglu_backward|ratio_to_copy|>=|0.75|of the card's copies
adamw 100 million|ratio_to_copy|>=|0.75|of the card's copies
cross_entropy 4096 x 128256 bf16|ratio_to_copy|>=|0.75|of the card's copies
attention by own, 64/8 heads of 64, sequence 16384|tflops|>=|136|0.35 of cuDNN's on an H100
attention by own, 64/8 heads of 128, sequence 16384|tflops|>=|189|0.35 of cuDNN's on an H100
attention_backward by own, 64/8 heads of 128, sequence 16384|tflops|>=|181|0.35 of cuDNN's on an H100
mlp, tiling off|ratio_to_matmuls|<=|1.08|of its nine matmuls
mlp, tiling tokens:8192|ratio_to_untiled|<=|1.25|of the untiled
mlp, tiling tokens:4096|ratio_to_untiled|<=|1.30|of the untiled
step of a 1.5-billion Llama, 4 x 4096 tokens|share_of_matmul_rate|>=|0.45|of the card's matmuls
plan of the step, 4 x 4096 tokens|ratio_to_measured|>=|0.95|the plan's error
plan of the step, 4 x 4096 tokens|ratio_to_measured|<=|1.05|the plan's error
END
  case $device in
    *H100*) card_goals 329 100 668 2700 "measured on an H100" ;;
    *H200*) card_goals 305 88 684 3230 "planned for an H200" ;;
  esac
}
card_goals() { # MS MS TFLOPS GB WHY
  cat <<END
step of a 1.5-billion Llama, 4 x 4096 tokens|ms|<=|$1|$5
step of a 1.5-billion Llama, 1 x 4096 tokens|ms|<=|$2|$5
matmul 8192 x 4096 x 12288 bf16|tflops|>=|$3|$5
copy|gb_per_second|>=|$4|$5
END
}

# A line for each goal: met, MISSED, or not measured. Where several rows have a name, the worst counts.
compare_goals() {
  local name field relation value why
  while IFS='|' read -r name field relation value why; do
    awk -v name="$name" -v field="$field" -v relation="$relation" -v value="$value" -v why="$why" '
      function text(key) { return match($0, "\"" key "\": \"[^\"]*\"") ? substr($0, RSTART + length(key) + 5, RLENGTH - length(key) - 6) : "" }
      function number(key) { return match($0, "\"" key "\": [-0-9.e+]+") ? substr($0, RSTART + length(key) + 4, RLENGTH - length(key) - 4) : "" }
      {
        own = text("bench")
        if (text("tiling") != "") own = own ", tiling " text("tiling")
        found = own == name ? number(field) : ""
        if (found != "" && (worst == "" || (relation == ">=" ? found + 0 < worst + 0 : found + 0 > worst + 0))) worst = found
      }
      END {
        met = relation == ">=" ? worst + 0 >= value + 0 : worst + 0 <= value + 0
        result = worst == "" ? "not measured" : met ? "met" : "MISSED"
        printf "{\"name\": \"%s\", \"field\": \"%s\", \"goal\": \"%s %s\", \"why\": \"%s\", \"measured\": %s, \"result\": \"%s\"}\n",
               name, field, relation, value, why, worst == "" ? "null" : worst, result
      }' "$report_folder/rows"
  done < <(goals) >"$report_folder/goals"
}
show_goals() {
  sed -E 's/^\{"name": "([^"]*)", "field": "([^"]*)", "goal": "([^"]*)", "why": "([^"]*)", "measured": ([^,]*), "result": "([^"]*)"\}$/\1|\2|\3|\5|\6/' \
    "$report_folder/goals" | awk -F '|' '{ printf "  %-60s %-20s %-8s %8s  %s\n", $1, $2, $3, $4 == "null" ? "-" : $4, $5 }'
}

first_line() { # COMMAND...: what it prints first, or that it is not there
  { command -v "$1" >/dev/null && "$@" 2>&1; } | head -n 1 || true
}
# Below 1 MiB: rows of at most 500 kB, and the ends of as many logs as fit into 300 kB.
write_report() { # FILE
  {
    cat "$report_folder/head"
    printf '  "inventory": %s,\n' "$(head -c 60000 "$report_folder/inventory" 2>/dev/null | json)"
    printf '  "results": %s,\n' "$(json_list <(head -c 100000 "$report_folder/results" | grep '}$'))"
    printf '  "goals": %s,\n' "$(json_list "$report_folder/goals")"
    printf '  "rows": %s,\n' "$(json_list <(most_bytes 500000 "$report_folder/rows"))"
    printf '  "failures": %s\n}\n' "$(json_list <(most_bytes 300000 "$report_folder/failures"))"
  } >"$report_folder/new"
  mv "$report_folder/new" "$1"
}
most_bytes() { awk -v most="$1" '{ sum += length($0) + 5 } sum <= most' "$2"; } # BYTES FILE: its first lines
