// SPDX-License-Identifier: Apache-2.0
/// @file
/// The training loop that somebody would write by hand on one rank: the same modules over plain buffers, with neither
/// ShardedModule nor Executor. What a framework costs is measured against it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <fsdp/models/llama_config.hpp>
#include <fsdp/module/sharded_module.hpp>
#include <fsdp/nn/token_batch.hpp>
#include <fsdp/precision/policies.hpp>
#include <tiling/policies.hpp>

namespace fsdp::bench {

/// A Llama on the CPU; instantiated for Fp32 and Bf16Mixed in src/bench/bare_loop.cpp.
template <class PrecisionT>
class BareLoop {
 public:
  BareLoop(const LlamaConfig& config, const tiling::RunTime& tiling, const RunShape& shape);
  BareLoop(BareLoop&&) noexcept;
  ~BareLoop();

  /// Sets a part of the weight of this name, from its element `begin` on.
  void set(const std::string& name, std::int64_t begin, Tensor<const float> values);

  /// Forward, loss, backward, gradient norm and AdamW; returns the mean loss.
  double step(const TokenBatch& batch, double lr);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

extern template class BareLoop<Fp32>;
extern template class BareLoop<Bf16Mixed>;

}  // namespace fsdp::bench
