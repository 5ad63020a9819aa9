// SPDX-License-Identifier: Apache-2.0
/// @file
/// The batch of a forecaster: float inputs and float targets.
#pragma once

#include <cmath>
#include <cstdint>
#include <string_view>
#include <utility>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/meta.hpp>
#include <tessera/fsdp/nn/batch.hpp>

namespace forecaster {

using fsdp::Tensor;

/// A Batch (see tessera/fsdp/nn/batch.hpp). A target of NaN is unknown and is ignored.
struct Batch {
  static constexpr std::string_view unit = "points";  // points in time, which the log counts

  Tensor<const float> inputs;   // [T, F]
  Tensor<const float> targets;  // [T, O]
  std::int64_t sequences = 0;

  fsdp::BatchCounts counts() const {
    const std::int64_t length = inputs.rows() / sequences;
    std::int64_t known = 0;
    for (std::int64_t i = 0; i < targets.numel(); ++i) known += std::isnan(targets.data()[i]) ? 0 : 1;
    return {.valid_targets = known, .squares = sequences * length * length};
  }
  std::pair<std::int64_t, std::int64_t> pattern() const { return {sequences, inputs.rows()}; }

  /// Returns a batch of this shape without storage, for dry runs.
  static Batch unread(std::int64_t sequences, std::int64_t length, std::int64_t features, std::int64_t outputs) {
    using fsdp::device::unbacked;
    return {.inputs = unbacked<const float>({sequences * length, features}),
            .targets = unbacked<const float>({sequences * length, outputs}),
            .sequences = sequences};
  }
  /// Throws InputError unless a model of these sizes can use the batch.
  void validate(std::int64_t length, std::int64_t features, std::int64_t outputs) const {
    using fsdp::InputError;
    const std::int64_t rows = sequences * length;
    fsdp::require<InputError>(inputs.shape() == fsdp::Shape{rows, features}, "a batch's inputs are not [", rows, ", ",
                              features, "]");
    fsdp::require<InputError>(targets.shape() == fsdp::Shape{rows, outputs}, "a batch's targets are not [", rows, ", ",
                              outputs, "]");
    for (std::int64_t i = 0; i < inputs.numel(); ++i)
      fsdp::require<InputError>(std::isfinite(inputs.data()[i]), "input ", i, " of a batch is ", inputs.data()[i]);
    for (std::int64_t i = 0; i < targets.numel(); ++i)
      fsdp::require<InputError>(!std::isinf(targets.data()[i]), "target ", i, " of a batch is ", targets.data()[i]);
  }

  struct OnDevice {
    Tensor<const float> input, targets;
  };
  template <class L>
  OnDevice upload(fsdp::nn::Context<L>& context) const {
    return {fsdp::nn::on_device(context, inputs), fsdp::nn::on_device(context, targets)};
  }
};

}  // namespace forecaster
