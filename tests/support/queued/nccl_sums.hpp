// SPDX-License-Identifier: Apache-2.0
/// @file
/// The order in which the fake NCCL of "/nccl" stacks adds floats.
#pragma once

#include <tessera/fsdp/testing/nccl/double.hpp>

namespace fsdp::test {

/// Sets the order for its lifetime.
class NcclSums {
  using Double = testing::NcclDouble<testing::QueuedCpu>;

 public:
  using enum testing::NcclSumOrder;

  explicit NcclSums(testing::NcclSumOrder order) { Double::sums = order; }
  NcclSums(const NcclSums&) = delete;
  NcclSums& operator=(const NcclSums&) = delete;
  ~NcclSums() { Double::sums = in_fixed_order; }
};

}  // namespace fsdp::test
