// SPDX-License-Identifier: Apache-2.0
/// @file
/// The three products of a linear layer, by what this program was compiled for: Eigen, OpenBLAS behind Eigen, or
/// tessera::tessera's Matmul.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include <tessera/fsdp/core/tensor.hpp>

namespace fsdp::bench {

/// On one thread. Matrices are contiguous and row-major: x [rows, in], w [out, in], y and dy [rows, out].
class Products {
 public:
  Products(std::int64_t rows, std::int64_t in, std::int64_t out);
  ~Products();

  static std::string_view by();  ///< what computes: eigen, openblas or tessera

  void forward(Tensor<const float> x, Tensor<const float> w, Tensor<float> y);            ///< y = x wT
  void input_gradient(Tensor<const float> dy, Tensor<const float> w, Tensor<float> dx);   ///< dx = dy w
  void weight_gradient(Tensor<const float> dy, Tensor<const float> x, Tensor<float> dw);  ///< dw = dyT x

 private:
  struct Own;
  std::unique_ptr<Own> own_;
};

}  // namespace fsdp::bench
