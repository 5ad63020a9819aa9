// SPDX-License-Identifier: Apache-2.0
/// @file
/// The operations of GPT-2 that the library does not provide. operations.cpp implements them for the CPU.
///
/// For another device, add overloads of `run` for its stream. Results do not depend on the number of threads.
#pragma once

#include <cstdint>
#include <string_view>
#include <tuple>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/fsdp/device/documents.hpp>
#include <tessera/fsdp/device/operation.hpp>

namespace gpt2 {

using fsdp::require;
using fsdp::Tensor;
using fsdp::Write;
using fsdp::device::Cost;
using fsdp::device::Cpu;

/// y = (x - mean) / sqrt(variance + eps) * weight + bias, per row (Ba et al. 2016). Also writes mean and 1 / sqrt(...).
template <class T>
struct LayerNorm {
  static constexpr std::string_view name = "layer_norm";

  Tensor<const T> x = {};       // [T, H]
  Tensor<const T> weight = {};  // [H]
  Tensor<const T> bias = {};    // [H]
  float eps = 1e-5f;
  Tensor<T> y = {};         // [T, H]
  Tensor<float> mean = {};  // [T]
  Tensor<float> rstd = {};  // [T]

  auto tensors() const { return std::tie(x, weight, bias, y, mean, rstd); }
  Cost cost() const { return {.bytes = x.bytes() + 2 * weight.bytes() + y.bytes() + 2 * rstd.bytes()}; }
  void check() const {
    fsdp::device::require_same_shape(name, x, y);
    require(x.rank() == 2 && weight.numel() == x.columns() && bias.numel() == x.columns() && mean.numel() == x.rows() &&
                rstd.numel() == x.rows(),
            "layer_norm: x must be [", rstd.numel(), ", ", weight.numel(),
            "], as many rows as statistics and as many columns as weights");
  }
};

/// Gradients of LayerNorm. Each is overwritten or accumulated. dx may alias dy. dweight and dbias are not computed if
/// they have no memory.
template <class T>
struct LayerNormBackward {
  static constexpr std::string_view name = "layer_norm_backward";

  Tensor<const T> x = {};         // [T, H]
  Tensor<const T> weight = {};    // [H]
  Tensor<const float> mean = {};  // [T]
  Tensor<const float> rstd = {};  // [T]
  Tensor<const T> dy = {};        // [T, H]
  Tensor<T> dx = {};              // [T, H]
  Write dx_write = Write::overwrite;
  Tensor<float> dweight = {};  // [H]
  Write dweight_write = Write::overwrite;
  Tensor<float> dbias = {};  // [H]
  Write dbias_write = Write::overwrite;

  auto tensors() const { return std::tie(x, weight, mean, rstd, dy, dx, dweight, dbias); }
  Cost cost() const {
    const auto times = [](Write write) { return write == Write::accumulate ? 2 : 1; };
    return {.bytes = x.bytes() + weight.bytes() + 2 * rstd.bytes() + dy.bytes() + times(dx_write) * dx.bytes() +
                     times(dweight_write) * dweight.bytes() + times(dbias_write) * dbias.bytes()};
  }
  void check() const {
    fsdp::device::require_same_shape(name, x, dy);
    fsdp::device::require_same_shape(name, x, dx);
    require(x.rank() == 2 && weight.numel() == x.columns() && dweight.numel() == x.columns() &&
                dbias.numel() == x.columns() && mean.numel() == x.rows() && rstd.numel() == x.rows(),
            "layer_norm_backward: x must be [", rstd.numel(), ", ", weight.numel(),
            "], as many rows as statistics and as many columns as weights and gradients");
  }
};

/// y = gelu(x), in its tanh form (Hendrycks and Gimpel 2016): Hugging Face's "gelu_new".
template <class T>
struct Gelu {
  static constexpr std::string_view name = "gelu";

  Tensor<const T> x = {};
  Tensor<T> y = {};

  auto tensors() const { return std::tie(x, y); }
  Cost cost() const { return {.bytes = x.bytes() + y.bytes()}; }
  void check() const {
    fsdp::device::require_same_shape(name, x, y);
    require(x.contiguous() && y.contiguous(), "gelu: x and y must be contiguous");
  }
};

/// d *= gelu'(x).
template <class T>
struct GeluBackward {
  static constexpr std::string_view name = "gelu_backward";

  Tensor<const T> x = {};
  Tensor<T> d = {};

  auto tensors() const { return std::tie(x, d); }
  Cost cost() const { return {.bytes = x.bytes() + 2 * d.bytes()}; }
  void check() const {
    fsdp::device::require_same_shape(name, x, d);
    require(x.contiguous() && d.contiguous(), "gelu_backward: x and d must be contiguous");
  }
};

/// Maps each token of a batch to its position. Positions restart with every document.
struct Positions {
  std::int64_t sequence_length = 0;
  fsdp::device::CumulativeLengths documents = {};

  std::int64_t of(std::int64_t token) const {
    return token - fsdp::device::document_of(documents, sequence_length, token).begin;
  }
};

/// y[t] += table[position of t].
template <class T>
struct AddPositions {
  static constexpr std::string_view name = "add_positions";

  Positions positions = {};
  Tensor<const T> table = {};  // [P, H]
  Tensor<T> y = {};            // [T, H]

  auto tensors() const { return std::tie(table, y); }
  Cost cost() const { return {.bytes = 3 * y.bytes()}; }
  void check() const {
    require(table.rank() == 2 && y.rank() == 2 && y.columns() == table.columns() &&
                positions.sequence_length <= table.rows(),
            "add_positions: sequences of ", positions.sequence_length, " need as many rows of the table's columns");
  }
};

/// dtable[position of t] += dy[t], in the order of t. Write::overwrite clears the table first.
template <class T>
struct PositionsGradient {
  static constexpr std::string_view name = "positions_gradient";

  Positions positions = {};
  Tensor<const T> dy = {};    // [T, H]
  Tensor<float> dtable = {};  // [P, H]
  Write write = Write::overwrite;

  auto tensors() const { return std::tie(dy, dtable); }
  Cost cost() const { return {.bytes = dy.bytes() + (write == Write::accumulate ? 2 : 1) * dtable.bytes()}; }
  void check() const {
    require(dtable.rank() == 2 && dy.rank() == 2 && dy.columns() == dtable.columns() &&
                positions.sequence_length <= dtable.rows(),
            "positions_gradient: sequences of ", positions.sequence_length,
            " need as many rows of the table's columns");
  }
};

// CPU kernels. T is float or bf16.

template <fsdp::device::ComputedBy<Cpu> T>
void run(Cpu::Stream&, const LayerNorm<T>&);
template <fsdp::device::ComputedBy<Cpu> T>
void run(Cpu::Stream&, const LayerNormBackward<T>&);
template <fsdp::device::ComputedBy<Cpu> T>
void run(Cpu::Stream&, const Gelu<T>&);
template <fsdp::device::ComputedBy<Cpu> T>
void run(Cpu::Stream&, const GeluBackward<T>&);
template <fsdp::device::ComputedBy<Cpu> T>
void run(Cpu::Stream&, const AddPositions<T>&);
template <fsdp::device::ComputedBy<Cpu> T>
void run(Cpu::Stream&, const PositionsGradient<T>&);

}  // namespace gpt2
