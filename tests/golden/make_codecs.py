# SPDX-License-Identifier: Apache-2.0
"""Writes tests/device/codec_vectors.hpp: bytes of bitsandbytes 0.50.2, on the CPU, of inputs that tests/device/codec_test.cpp makes too.

usage: make_codecs.py > tests/device/codec_vectors.hpp     (in a virtual environment with bitsandbytes==0.50.2 and torch)

For float32 bitsandbytes' CPU kernel looks up codes by 65,536 bins of the ratio, which are wider than the map's parts below 1e-3; for
float64 it searches the nearest entry, the lower of two. The vectors are of the latter, and the share of AdamW8bit's codes that the
bins change is printed on stderr.
"""
import sys

import bitsandbytes as bnb
import bitsandbytes.backends.cpu.ops as cpu
import numpy as np
import torch


def numbers(seed, count, spread):
    """As `numbers` in codec_test.cpp: device::dropout_word, with exponents spread over 2^-spread."""
    word = (seed + np.arange(count, dtype=np.uint64) * 0x9E3779B9) & 0xFFFFFFFF
    word = ((word ^ (word >> 16)) * 0x7FEB352D) & 0xFFFFFFFF
    word = ((word ^ (word >> 15)) * 0x846CA68B) & 0xFFFFFFFF
    word ^= word >> 16
    signed = word.astype(np.uint32).astype(np.int32).astype(np.float32)
    return torch.from_numpy(np.ldexp(signed, -31 - (word % spread).astype(np.int32)).astype(np.float32))


def quantize(x, code, block):
    return torch.ops.bitsandbytes.quantize_blockwise(x.double(), code, block)


def adamw(count, steps, exact):
    """Returns AdamW8bit's codes of the moments after some steps."""
    before = cpu._quant_blockwise_fp32_direct

    def quantize_exactly(values, code, scales, codes, block):
        found, largest = quantize(values, code, block)
        codes.copy_(found)
        scales.copy_(largest)

    cpu._quant_blockwise_fp32_direct = quantize_exactly if exact else before
    weight = torch.nn.Parameter(torch.zeros(count))
    optimizer = bnb.optim.AdamW8bit([weight], lr=1e-3, betas=(0.9, 0.95), weight_decay=0, min_8bit_size=0)
    for step in range(1, steps + 1):
        weight.grad = numbers(step * 1000003, count, 8)
        optimizer.step()
    state = optimizer.state[weight]
    cpu._quant_blockwise_fp32_direct = before
    return state["state1"], state["state2"]


def emit(name, data):
    text = data.numpy().tobytes().hex()
    print(f"inline constexpr std::string_view {name} =")
    lines = [f'    "{text[at : at + 112]}"' for at in range(0, len(text), 112)]
    print("\n".join(lines) + ";")


print("// SPDX-License-Identifier: Apache-2.0\n/// Written by tests/golden/make_codecs.py with bitsandbytes", bnb.__version__)
print("#pragma once\n\n#include <string_view>\n\nnamespace fsdp::device::vectors {\n")
for name, signed in (("dynamic8", True), ("dynamic8_unsigned", False)):
    x = numbers(7, 1024, 24)
    codes, scales = quantize(x if signed else x.abs(), bnb.functional.create_dynamic_map(signed), 256)
    emit(f"{name}_codes", codes)
    emit(f"{name}_scales", scales)
packed, scales = torch.ops.bitsandbytes.quantize_4bit(numbers(9, 1024, 6), 64, "nf4", torch.uint8)
emit("nf4_codes", packed.flatten())
emit("nf4_scales", scales)
exact, binned = adamw(1024, 20, True), adamw(1024, 20, False)
for name, codes, others in zip(("first", "second"), exact, binned):
    emit(f"adamw_{name}_codes", codes)
    print(f"of the {name} moment's codes, bins change {(codes != others).float().mean():.1%}", file=sys.stderr)
print("\n}  // namespace fsdp::device::vectors")
