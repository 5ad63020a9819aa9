// SPDX-License-Identifier: Apache-2.0
/// @file
/// Explicit instantiations of modules that are compiled into the library: for the program's stacks, on the CPU and on
/// Meta.
///
/// A stack with one of these Locals links them; any other stack instantiates the modules itself. src/fsdp/nn/
/// has a file for each of CPU, Meta and CUDA. Long members that a stack calls are defined outside their class, because
/// a member defined inside is inline, and the compiler would instantiate it again in every stack.
#pragma once

#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/fsdp/device/meta.hpp>
#include <tessera/fsdp/device/operations.hpp>
#include <tessera/fsdp/nn/embedding.hpp>
#include <tessera/fsdp/nn/loss_head.hpp>
#include <tessera/fsdp/nn/recomputed.hpp>
#include <tessera/fsdp/nn/transformer_block.hpp>
#include <tessera/fsdp/precision/policies.hpp>

namespace fsdp::device {

FSDP_ENQUEUE(extern template, Meta::Stream)

}  // namespace fsdp::device

namespace fsdp::nn {

/// All modules of a Llama; `how` is `extern template` or `template`.
#define FSDP_NN_INSTANCES(how, ...)                                  \
  how struct Embedding<__VA_ARGS__>;                                 \
  how struct RotaryEmbedding<__VA_ARGS__>;                           \
  how class SwiGluTile<__VA_ARGS__>;                                 \
  how struct ResidualMlp<__VA_ARGS__>;                               \
  how struct ResidualAttention<__VA_ARGS__>;                         \
  how struct TransformerBlock<__VA_ARGS__>;                          \
  how struct Recomputed<TransformerBlock<__VA_ARGS__>, __VA_ARGS__>; \
  how struct LossHead<__VA_ARGS__>;

using CpuFp32 = Local<device::Cpu, Fp32>;
using CpuBf16 = Local<device::Cpu, Bf16Mixed>;
using MetaFp32 = Local<device::Meta, Fp32>;
using MetaBf16 = Local<device::Meta, Bf16Mixed>;

FSDP_NN_INSTANCES(extern template, CpuFp32)
FSDP_NN_INSTANCES(extern template, CpuBf16)
FSDP_NN_INSTANCES(extern template, MetaFp32)
FSDP_NN_INSTANCES(extern template, MetaBf16)

/// The layout of these types must be the same in the library and in the program, even if different compilers built
/// them; see Recomputed. tests/consumer/other_compiler.sh compares all these layouts between two compilers.
template <class L>
struct AsRecomputed {
  TransformerBlock<L> block;
  bool on;
};
static_assert(sizeof(Recomputed<TransformerBlock<CpuFp32>, CpuFp32>) == sizeof(AsRecomputed<CpuFp32>),
              "fsdp: a Recomputed has no base, so that all compilers put its block at its start");

}  // namespace fsdp::nn
