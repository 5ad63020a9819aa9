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
template <ComputedBy<Cuda> T>
std::int64_t scratch(const Cuda::Planner&, const RmsNormBackward<T>& op) {
  return op.wants_dw() ? cuda::row_sums_scratch(op.rstd.numel(), op.weight.numel()) : 0;
}
template <ComputedBy<Cuda> T>
std::int64_t scratch(const Cuda::Planner&, const BiasBackward<T>& op) {
  return cuda::row_sums_scratch(op.dy.rows(), op.dy.columns());
}
template <ComputedBy<Cuda> T>
std::int64_t scratch(const Cuda::Planner&, const Rope<T>& op) {
  return cuda::documents_scratch(op.x.rows());
}
template <ComputedBy<Cuda> T>
std::int64_t scratch(const Cuda::Planner&, const Attention<T>& op) {
  return cuda::attention_scratch(op.shape, dtype_of<T>(), false);
}
template <ComputedBy<Cuda> T>
std::int64_t scratch(const Cuda::Planner&, const AttentionBackward<T>& op) {
  return cuda::attention_scratch(op.shape, dtype_of<T>(), true);
}
template <ComputedBy<Cuda> T>
std::int64_t scratch(const Cuda::Planner&, const CrossEntropy<T>& op) {
  return op.logits.rows() * std::int64_t{sizeof(double)};
}
template <ComputedBy<Cuda> T>
std::int64_t scratch(const Cuda::Planner&, const CrossEntropyLoss<T>& op) {
  return op.logits.rows() * std::int64_t{sizeof(double)};
}

#define FSDP_CUDA_SCRATCH(T)                                                        \
  template std::int64_t scratch(const Cuda::Planner&, const Matmul<T, T>&);         \
  template std::int64_t scratch(const Cuda::Planner&, const RmsNormBackward<T>&);   \
  template std::int64_t scratch(const Cuda::Planner&, const BiasBackward<T>&);      \
  template std::int64_t scratch(const Cuda::Planner&, const Rope<T>&);              \
  template std::int64_t scratch(const Cuda::Planner&, const Attention<T>&);         \
  template std::int64_t scratch(const Cuda::Planner&, const AttentionBackward<T>&); \
  template std::int64_t scratch(const Cuda::Planner&, const CrossEntropy<T>&);      \
  template std::int64_t scratch(const Cuda::Planner&, const CrossEntropyLoss<T>&);
FSDP_CUDA_SCRATCH(float)
FSDP_CUDA_SCRATCH(bf16)
FSDP_CUDA_SCRATCH(f16)
template std::int64_t scratch(const Cuda::Planner&, const Matmul<bf16, float>&);
template std::int64_t scratch(const Cuda::Planner&, const Matmul<f16, float>&);

}  // namespace fsdp::device
