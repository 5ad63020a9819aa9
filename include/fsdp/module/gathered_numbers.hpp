// SPDX-License-Identifier: Apache-2.0
/// @file
/// A few numbers of every rank, gathered where the device can use them while the host goes on.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <comm/collectives.hpp>
#include <fsdp/core/tensor.hpp>
#include <fsdp/device/memory.hpp>

namespace fsdp {

/// Doubles in the device's memory, `count` from each rank. `communicator` must outlive it.
template <comm::Communicator C>
class GatheredNumbers {
 public:
  using Device = typename C::Device;

  GatheredNumbers(C& communicator, device::Ledger& ledger, std::int64_t count)
      : communicator_(&communicator),
        counts_(static_cast<std::size_t>(communicator.size()), count),
        block_(ledger, device::MemoryKind::scratch,
               communicator.size() * count * static_cast<std::int64_t>(sizeof(double))) {}

  /// This rank's numbers.
  Tensor<double> own() const {
    const std::int64_t count = counts_.front();
    return {reinterpret_cast<double*>(block_.data()) + communicator_->rank() * count, {count}};
  }
  /// [ranks, count]: every rank's numbers as its `queue` has written them so far, for work enqueued after this call.
  Tensor<const double> gather(typename Device::Queue& queue, comm::Label label) {
    const Tensor<double> all(reinterpret_cast<double*>(block_.data()), {communicator_->size(), counts_.front()});
    if (communicator_->size() > 1) {
      comm::after(*communicator_, queue.record());
      const std::array segments{comm::Segment<double>{.local = own().data(), .full = all.data(), .counts = counts_}};
      comm::all_gather(*communicator_, segments, label).wait(queue);
    }
    return all;
  }

 private:
  C* communicator_;
  std::vector<std::int64_t> counts_;
  device::Block<Device> block_;
};

}  // namespace fsdp
