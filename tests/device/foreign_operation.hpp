// SPDX-License-Identifier: Apache-2.0
/// @file
/// A user-defined operation, in a separate namespace.
#pragma once

#include <cstdint>
#include <string_view>
#include <tuple>

#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/fsdp/device/operation.hpp>

namespace elsewhere {

/// y = x + mean(x), per row.
struct AddMean {
  static constexpr std::string_view name = "add_mean";

  fsdp::Tensor<const float> x = {};  // [T, H]
  fsdp::Tensor<float> y = {};        // [T, H]

  auto tensors() const { return std::tie(x, y); }
  fsdp::device::Cost cost() const { return {.bytes = x.bytes() + y.bytes()}; }
  void check() const { fsdp::require(x.rank() == 2 && x.shape() == y.shape(), "add_mean: x and y must be one matrix"); }
};

/// Scratch bytes: one mean per row, and one more per thread.
inline std::int64_t scratch(const fsdp::device::Cpu::Planner& planner, const AddMean& op) {
  return (op.x.rows() + planner.threads()) * std::int64_t{sizeof(double)};
}

inline void run(fsdp::device::Cpu::Stream& stream, const AddMean& op, fsdp::device::Scratch memory) {
  const auto means = memory.as<double>({op.x.rows() + stream.threads()});
  for (std::int64_t row = 0; row < op.x.rows(); ++row) {
    means[row] = 0;
    for (std::int64_t i = 0; i < op.x.columns(); ++i) means[row] += static_cast<double>(op.x.row(row)[i]);
    means[row] /= static_cast<double>(op.x.columns());
  }
  for (std::int64_t row = 0; row < op.x.rows(); ++row)
    for (std::int64_t i = 0; i < op.x.columns(); ++i)
      op.y.row(row)[i] = static_cast<float>(static_cast<double>(op.x.row(row)[i]) + means[row]);
}

}  // namespace elsewhere
