// SPDX-License-Identifier: Apache-2.0
/// @file
/// Meta for a GPU. It needs neither CUDA nor the CPU's kernels.
#include <fsdp/device/cuda.hpp>

#include "cuda/scratch.hpp"
#include "meta_operations.hpp"

namespace fsdp::device {

/// Scratch of a GPU: functions of the problem.
template <>
struct MetaOf<Cuda>::Stream::Planner {
  explicit Planner(int) {}

  std::int64_t matmul(const MatmulRecord& problem, std::int64_t, std::int64_t, std::int64_t) const {
    return cuda::matmul_scratch(problem);
  }
  std::int64_t norm_backward(const costs::Cost&, std::int64_t rows, std::int64_t columns, bool wants_dw) const {
    return cuda::norm_scratch(rows, columns, wants_dw);
  }
  std::int64_t rope(std::int64_t tokens) const { return cuda::documents_scratch(tokens); }
  std::int64_t attention(const AttentionShape& shape, DType dtype, bool backward) const {
    return cuda::attention_scratch(shape, dtype, backward);
  }
};

FSDP_META(Cuda)
FSDP_META_OPERATIONS(MetaOf<Cuda>, f16)
template void MetaOf<Cuda>::matmul<f16, float>(Stream&, Operand<f16>, Operand<f16>, Tensor<float>, Write);
template void MetaOf<Cuda>::copy<f16, f16>(Stream&, Tensor<const f16>, Tensor<f16>);
template void MetaOf<Cuda>::copy<float, f16>(Stream&, Tensor<const float>, Tensor<f16>);

}  // namespace fsdp::device
