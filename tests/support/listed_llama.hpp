// SPDX-License-Identifier: Apache-2.0
/// @file
/// The parameters of a Llama, independent of its stack.
#pragma once

#include <tessera/comm/self.hpp>
#include <tessera/fsdp/model_files/model_files.hpp>
#include <tessera/fsdp/models/llama.hpp>

namespace fsdp::test {

using ListedLlama = Llama<Stack<Replicated, comm::Self<>, Fp32, tiling::Untiled>>;

inline checkpoint::ModelListing listing_of(const LlamaConfig& config) {
  return checkpoint::listing_of(ListedLlama(config));
}

}  // namespace fsdp::test
