// SPDX-License-Identifier: Apache-2.0
/// @file
/// The squared error: the only operation of the forecaster that the library does not provide.
#pragma once

#include <cmath>
#include <cstdint>
#include <string_view>
#include <tuple>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/fsdp/device/operation.hpp>

namespace forecaster {

/// Adds the sum of (y - target)^2 to loss[0], and overwrites y with scale times the gradient of that sum. If a target
/// is NaN, adds nothing and sets y to 0. T is float or bf16.
template <class T>
struct SquaredError {
  static constexpr std::string_view name = "squared_error";

  fsdp::Tensor<T> y = {};                  // [T, O]
  fsdp::Tensor<const float> targets = {};  // [T, O]
  float scale = 1;
  fsdp::Tensor<double> loss = {};  // [1]

  auto tensors() const { return std::tie(targets, y, loss); }
  fsdp::device::Cost cost() const { return {.bytes = 2 * y.bytes() + targets.bytes()}; }
  void check() const {
    fsdp::require(y.shape() == targets.shape() && y.contiguous() && loss.numel() >= 1,
                  "squared_error: ", targets.numel(), " targets for ", y.numel(), " numbers; both must have one shape");
  }
};

/// Runs on one thread, in the order of rows, since there are few outputs.
template <fsdp::device::ComputedBy<fsdp::device::Cpu> T>
void run(fsdp::device::Cpu::Stream&, const SquaredError<T>& op) {
  double sum = 0;
  for (std::int64_t i = 0; i < op.y.numel(); ++i) {
    const float target = op.targets.data()[i];
    const float error = std::isnan(target) ? 0.0f : static_cast<float>(op.y.data()[i]) - target;
    sum += static_cast<double>(error) * static_cast<double>(error);
    op.y.data()[i] = T(2 * op.scale * error);
  }
  op.loss[0] += sum;
}

}  // namespace forecaster
