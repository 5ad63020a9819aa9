// SPDX-License-Identifier: Apache-2.0
/// @file
/// A callback that observes the tensors that StepDigests digests.
#pragma once

#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/sharding/schedule.hpp>

namespace fsdp {

/// A callback that is called with each stream that a task of a training pass writes, after the task is enqueued: the
/// residual stream [T, H] after forward, its gradient after backward. The tensor is valid during the call; work that
/// reads it must be enqueued on the compute stream.
template <class Compute>
struct StreamProbe {
  void (*see)(void* state, const sharding::Task& task, Tensor<const Compute> values) = nullptr;
  void* state = nullptr;
};

}  // namespace fsdp
