// SPDX-License-Identifier: Apache-2.0
/// @file
/// Scratch sizes of Cuda's compute kernels, for the kernels and for dry runs. Needs neither CUDA nor the CPU's kernels.
#include <tessera/fsdp/device/compute/cuda.hpp>

#include "../cuda/scratch.hpp"

namespace fsdp::device {

template <ComputedBy<Cuda> A, ComputedBy<Cuda> C>
std::int64_t scratch(const Cuda::Planner&, const Matmul<A, C>& op) {
  return cuda::matmul_scratch(op.record());
}
template std::int64_t scratch(const Cuda::Planner&, const Matmul<float, float>&);
template std::int64_t scratch(const Cuda::Planner&, const Matmul<bf16, bf16>&);
template std::int64_t scratch(const Cuda::Planner&, const Matmul<bf16, float>&);
template std::int64_t scratch(const Cuda::Planner&, const Matmul<f16, f16>&);
template std::int64_t scratch(const Cuda::Planner&, const Matmul<f16, float>&);

template <ComputedBy<Cuda> T, WeightFor<T> W>
std::int64_t scratch(const Cuda::Planner&, const RmsNormBackward<T, W>& op) {
  return op.wants_dw() ? cuda::row_sums_scratch(op.rstd.numel(), op.weight.numel()) : 0;
}
template std::int64_t scratch(const Cuda::Planner&, const RmsNormBackward<float>&);
template std::int64_t scratch(const Cuda::Planner&, const RmsNormBackward<bf16>&);
template std::int64_t scratch(const Cuda::Planner&, const RmsNormBackward<f16>&);
template std::int64_t scratch(const Cuda::Planner&, const RmsNormBackward<bf16, float>&);
template std::int64_t scratch(const Cuda::Planner&, const RmsNormBackward<f16, float>&);

/// Defines `scratch` of an operation `op` over elements of type T.
#define FSDP_SCRATCH(Operation, bytes)                                          \
  template <ComputedBy<Cuda> T>                                                 \
  std::int64_t scratch(const Cuda::Planner&, const Operation<T>& op) {          \
    return bytes;                                                               \
  }                                                                             \
  template std::int64_t scratch(const Cuda::Planner&, const Operation<float>&); \
  template std::int64_t scratch(const Cuda::Planner&, const Operation<bf16>&);  \
  template std::int64_t scratch(const Cuda::Planner&, const Operation<f16>&);
FSDP_SCRATCH(BiasBackward, cuda::row_sums_scratch(op.dy.rows(), op.dy.columns()))
FSDP_SCRATCH(Rope, cuda::documents_scratch(op.x.rows()))
FSDP_SCRATCH(Attention, cuda::attention_scratch(op.shape, dtype_of<T>(), false))
FSDP_SCRATCH(AttentionBackward, cuda::attention_scratch(op.shape, dtype_of<T>(), true))
FSDP_SCRATCH(CrossEntropy, op.logits.rows() * std::int64_t{sizeof(double)})
FSDP_SCRATCH(CrossEntropyLoss, op.logits.rows() * std::int64_t{sizeof(double)})

bool in_own_kernels(const Cuda::Planner&, const AttentionShape& shape, DType dtype, bool backward) {
  return cuda::cudnn_scratch(shape, dtype, backward) == 0;
}

}  // namespace fsdp::device
