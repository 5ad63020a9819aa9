#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Numbers that once crashed, wrapped or did nothing. tests/long/numbers.sh tries every flag at every edge.
set -euo pipefail
source "$(dirname "$0")/../support/program.sh"

text 3000 text.txt
train=("$program" train --data text.txt --model tiny --seq-len 16 --precision fp32 --steps 2)
expect_error 'batch-size 2147483648 must be at least 1 and at most 1048576' "${train[@]}" --batch-size 2147483648
expect_error 'batch-size 9223372036854775807 must be' "${train[@]}" --batch-size 9223372036854775807
expect_error 'grad-accum 4294967296 must be at least 1 and at most 1048576' "${train[@]}" --grad-accum 4294967296
expect_error 'threads 100000 must be at least 0 and at most 1024' "${train[@]}" --threads 100000
expect_error 'threads 4294967297 must be' "${train[@]}" --threads 4294967297
expect_error 'deadline 1e\+16 must be above 0 and at most 1e\+06' "${train[@]}" --deadline 1e16
expect_error 'ranks 4294967298 must be at least 0 and at most 65536' "${train[@]}" --dry-run --ranks 4294967298
expect_error 'fsdp2:4294967298: the number must be at most 2147483647' "${train[@]}" --sharding fsdp2:4294967298
expect_error 'threads:4294967298: the number must be at most 1024' "${train[@]}" --comm threads:4294967298
expect_error 'tokens:9223372036854775807: the number must be at most' "${train[@]}" --tiling tokens:9223372036854775807
printf 'steps = 3\ngrad-accum = 4294967296\n' >file.toml
expect_error 'grad-accum 4294967296 must be' "$program" train --data text.txt --config file.toml
