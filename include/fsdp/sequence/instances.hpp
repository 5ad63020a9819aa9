// SPDX-License-Identifier: Apache-2.0
/// @file
/// Explicit instantiations of stages that are compiled into the library, like the modules of
/// tessera/fsdp/nn/instances.hpp.
#pragma once

#include <tessera/fsdp/nn/instances.hpp>
#include <tessera/fsdp/sequence/staged_block.hpp>

namespace fsdp::nn {

/// All stages of a Llama; `how` is `extern template` or `template`.
#define FSDP_SEQUENCE_INSTANCES(how, ...)  \
  how struct StagedAttention<__VA_ARGS__>; \
  how struct StagedTransformerBlock<__VA_ARGS__>;

FSDP_SEQUENCE_INSTANCES(extern template, CpuFp32)
FSDP_SEQUENCE_INSTANCES(extern template, CpuBf16)
FSDP_SEQUENCE_INSTANCES(extern template, MetaFp32)
FSDP_SEQUENCE_INSTANCES(extern template, MetaBf16)

}  // namespace fsdp::nn
