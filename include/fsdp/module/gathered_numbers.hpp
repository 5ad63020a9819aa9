// SPDX-License-Identifier: Apache-2.0
/// @file
/// An all-gather of a few numbers per rank, on the device and without blocking the host.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/comm/collectives.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/memory.hpp>

namespace fsdp {

/// An all-gather of `count` numbers per rank, double or std::int64_t, in device memory. `communicator` must outlive it.
template <comm::Communicator C, class T = double>
class GatheredNumbers {
 public:
  using Device = typename C::Device;

  GatheredNumbers(C& communicator, device::Ledger& ledger, std::int64_t count)
      : communicator_(&communicator),
        counts_(static_cast<std::size_t>(communicator.size()), count),
        block_(ledger, device::MemoryKind::scratch,
               communicator.size() * count * static_cast<std::int64_t>(sizeof(T))) {}

  /// Returns the buffer for this rank's numbers, to be written before `gather`.
  Tensor<T> own() const {
    const std::int64_t count = counts_.front();
    return {reinterpret_cast<T*>(block_.data()) + communicator_->rank() * count, {count}};
  }
  /// Gathers every rank's numbers, as written by work already enqueued on that rank's `queue`. Returns a tensor [ranks,
  /// count], for use by work enqueued on `queue` after this call.
  Tensor<const T> gather(typename Device::Queue& queue, comm::Label label) {
    const Tensor<T> all(reinterpret_cast<T*>(block_.data()), {communicator_->size(), counts_.front()});
    if (communicator_->size() > 1) {
      comm::after(*communicator_, queue.record());
      const std::array segments{comm::Segment<T>{.local = own().data(), .full = all.data(), .counts = counts_}};
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
