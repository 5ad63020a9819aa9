// SPDX-License-Identifier: Apache-2.0
/// @file
/// train::Training or train::Evaluation of a Llama of two layers under FullyShard, on a rank of Threads.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/execution/count_exchange.hpp>
#include <tessera/fsdp/models/llama_config.hpp>
#include <tessera/fsdp/module/pass.hpp>
#include <tessera/fsdp/nn/token_batch.hpp>
#include <tessera/fsdp/training/step_size.hpp>
#include <tessera/tiling/policies.hpp>
#include <tessera/trainer/run/validation.hpp>

namespace fsdp::test {

LlamaConfig two_layers();

/// Wraps train::Training (Purpose::train) or train::Evaluation: functions of these and of their parts, by the same
/// names.
class LlamaTraining {
 public:
  LlamaTraining(comm::Threads<>& communicator, const train::StepSize& size, Purpose purpose = Purpose::train,
                const tiling::RunTimeTiling& tiling = {}, const Observer& observer = {});
  ~LlamaTraining();

  const plan::Plan& plan() const;
  device::BytesByKind bytes();  ///< ShardedModel::peak_bytes
  std::int64_t peak_bytes() const;
  std::int64_t arena_peak();
  std::vector<std::span<float>> weights();  ///< weights of this rank, by piece
  void sync_model_weights();
  void initialize(std::uint64_t seed);
  CountExchange<comm::Threads<>>& counts();

  double step(std::span<const TokenBatch> micro_batches, const device::StepInputs& inputs);
  double step(const TokenBatch& batch, const device::StepInputs& inputs);
  double evaluate(const TokenBatch& batch);
  void evaluate_logits(const TokenBatch& batch, std::span<const std::int64_t> rows, Tensor<float> logits);
  void logits(const TokenBatch& batch, std::span<const std::int64_t> rows, Tensor<float> logits);
  void next_logits(const TokenBatch& batch, std::span<const std::int32_t> positions, Tensor<float> logits);
  /// train::mean_loss of these samples of a NumberedSource. `sequences`: the planned number of sequences.
  train::MeanLoss mean_loss(std::int64_t sequences, std::span<const std::int64_t> samples);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace fsdp::test
