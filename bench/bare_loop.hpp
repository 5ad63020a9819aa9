// SPDX-License-Identifier: Apache-2.0
/// @file
/// A hand-written training loop for one rank: the same modules over plain buffers, without ShardedModule and Executor.
/// It is the baseline for the framework's overhead.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <tessera/fsdp/execution/step_size.hpp>
#include <tessera/fsdp/models/llama_config.hpp>
#include <tessera/fsdp/nn/token_batch.hpp>
#include <tessera/fsdp/precision/policies.hpp>

namespace fsdp::bench {

/// A Llama on the CPU, instantiated for Fp32 and Bf16Mixed in bare_loop.cpp.
template <class PrecisionT>
class BareLoop {
 public:
  BareLoop(const LlamaConfig& config, const RunShape& shape);
  BareLoop(BareLoop&&) noexcept;
  ~BareLoop();

  /// Sets elements of the weight called `name`, starting at element `begin`.
  void set(const std::string& name, std::int64_t begin, Tensor<const float> values);

  /// Runs forward, loss, backward, gradient norm and AdamW. Returns the mean loss.
  double step(const TokenBatch& batch, double lr);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

extern template class BareLoop<Fp32>;
extern template class BareLoop<Bf16Mixed>;

}  // namespace fsdp::bench
