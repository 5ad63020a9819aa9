// SPDX-License-Identifier: Apache-2.0
/// @file
/// The part of a stack that code on one rank sees: its device and its element types.
#pragma once

namespace fsdp {

/// The rank-local policies that modules are compiled for. Tiling is rank-local too, but a run-time value of their
/// context, so that one instantiation serves every tiling.
template <class DeviceT, class PrecisionT>
struct Local {
  using Device = DeviceT;                             ///< where tensors are and kernels run
  using Precision = PrecisionT;                       ///< the element types of weights, gradients and sums
  using Compute = typename Precision::Compute;        ///< of weights as modules see them, and of activations
  using Accumulate = typename Precision::Accumulate;  ///< of gradients while they are summed
  using Arena = typename Device::Arena;               ///< where temporaries live
  using Frame = typename Device::Arena::Frame;        ///< frees what was allocated during its lifetime
};

}  // namespace fsdp
