// SPDX-License-Identifier: Apache-2.0
/// @file
/// What of a stack code on one rank sees: its device and its element types.
#pragma once

namespace fsdp {

/// The rank-local policies that modules are compiled for. Tiling is rank-local too, but a run-time value of their
/// context, so that one instantiation serves every tiling.
template <class DeviceT, class PrecisionT>
struct Local {
  using Device = DeviceT;
  using Precision = PrecisionT;
  using Compute = typename Precision::Compute;
  using Accumulate = typename Precision::Accumulate;
  using Arena = typename Device::Arena;
  using Frame = typename Device::Arena::Frame;
};

}  // namespace fsdp
