// SPDX-License-Identifier: Apache-2.0
/// @file
/// A look at the tensors that StepDigests digests.
#pragma once

#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/sharding/schedule.hpp>

namespace fsdp {

/// Called with each stream that a task of a training pass outputs, once that is enqueued: the residual stream [T, H]
/// after forward, its gradient after backward. The values are valid during the call; work that reads them goes onto the
/// compute stream.
template <class Compute>
struct StreamProbe {
  void (*see)(void* state, const sharding::Task& task, Tensor<const Compute> values) = nullptr;
  void* state = nullptr;
};

}  // namespace fsdp
