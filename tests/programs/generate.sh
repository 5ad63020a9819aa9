#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# generate: the prompt, then so many bytes, the same for a seed and for any number of ranks.
set -euo pipefail
source "$(dirname "$0")/../support/program.sh"

from=(--model "$golden/llama-gqa" --prompt 'a prompt' --tokens 40 --precision fp32 --threads 1)
write() { tessera generate "${from[@]}" "$@"; }

write --seed 3 && cp "$out" one
[ "$(stat -c %s one)" -eq $((8 + 40 + 1)) ] || fail "$(stat -c %s one) bytes"
[ "$(head -c 8 one)" = 'a prompt' ] || fail "the prompt is not where the text begins"
write --seed 3 && same one "$out"
write --seed 3 --comm threads:2 && same one "$out"
write --seed 3 --comm threads:2 --sharding replicated && same one "$out"
write --seed 4
! cmp -s one "$out" || fail "another seed gave the same text"

write --temperature 0 --seed 3 && cp "$out" likeliest
write --temperature 0 --seed 4 && same likeliest "$out"
tessera generate --model "$golden/llama-odd" --prompt x --tokens 0 --precision bf16
[ "$(stat -c %s "$out")" -eq 2 ] || fail "0 tokens are not 0 bytes"
# Longer than what each byte may look back at.
tessera generate --model "$golden/llama-odd" --prompt "$(head -c 300 /dev/zero | tr '\0' x)" --tokens 5 --precision bf16
[ "$(stat -c %s "$out")" -eq 306 ] || fail "a long prompt"
