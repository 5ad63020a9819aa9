// SPDX-License-Identifier: Apache-2.0
/// @file
/// The part of a stack that rank-local code depends on: its device and its element types.
#pragma once

namespace fsdp {

/// The rank-local policies that modules are compiled for. Tiling is rank-local too, but a run-time value of their
/// context, so that one instantiation serves every tiling.
template <class DeviceT, class PrecisionT>
struct Local {
  using Device = DeviceT;                             ///< device that stores the tensors and runs the kernels
  using Precision = PrecisionT;                       ///< the element types of weights, gradients and sums
  using Compute = typename Precision::Compute;        ///< type of weights as modules see them, and of activations
  using Accumulate = typename Precision::Accumulate;  ///< type of gradients while they are accumulated
  using Arena = typename Device::Arena;               ///< memory for temporaries
  using Frame = typename Device::Arena::Frame;        ///< frees the memory that is allocated during its lifetime
};

}  // namespace fsdp
