// SPDX-License-Identifier: Apache-2.0
/// @file
/// Scratch sizes of Cuda's elementwise kernels and optimizer steps, for the kernels and for dry runs. Needs no CUDA.
#include <tessera/fsdp/device/cuda.hpp>

#include "optimizer_step.hpp"

namespace fsdp::device {

std::int64_t scratch(const Cuda::Planner&, const SumOfSquares& op) {
  return op.chunks() * std::int64_t{sizeof(double)};
}
template <ComputedBy<Cuda> T>
std::int64_t scratch(const Cuda::Planner&, const AddDigest<T>& op) {
  return op.chunks() * std::int64_t{sizeof(std::int64_t)};
}
std::int64_t scratch(const Cuda::Planner&, const LargestMagnitude& op) {
  return op.chunks() * std::int64_t{sizeof(std::int64_t)};
}
std::int64_t scratch(const Cuda::Planner&, const FixedPointSquares& op) {
  return op.chunks() * std::int64_t{sizeof(FixedPointSum)};
}
template <ComputedBy<Cuda> Model>
std::int64_t scratch(const Cuda::Planner&, const AdamWStep<Model>&) {
  return sizeof(AdamWFactors);
}
template <ComputedBy<Cuda> Model>
std::int64_t scratch(const Cuda::Planner&, const CodedAdamWStep<Model>&) {
  return sizeof(AdamWFactors);
}

template std::int64_t scratch(const Cuda::Planner&, const AddDigest<float>&);
template std::int64_t scratch(const Cuda::Planner&, const AddDigest<bf16>&);
template std::int64_t scratch(const Cuda::Planner&, const AddDigest<f16>&);
template std::int64_t scratch(const Cuda::Planner&, const AdamWStep<float>&);
template std::int64_t scratch(const Cuda::Planner&, const AdamWStep<bf16>&);
template std::int64_t scratch(const Cuda::Planner&, const AdamWStep<f16>&);
template std::int64_t scratch(const Cuda::Planner&, const CodedAdamWStep<float>&);
template std::int64_t scratch(const Cuda::Planner&, const CodedAdamWStep<bf16>&);
template std::int64_t scratch(const Cuda::Planner&, const CodedAdamWStep<f16>&);

}  // namespace fsdp::device
