// SPDX-License-Identifier: Apache-2.0
/// @file
/// What becomes one group of NCCL calls, and the sums that follow it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <comm/any_queue.hpp>
#include <comm/nccl_table.hpp>

#include "nccl_link.hpp"

namespace fsdp::comm {

/// Collects calls until a group is full. All ranks must cut their calls at the same places, or a send would wait for a
/// receive in a group that comes after its own: so what is asked for room is the most that any rank needs.
class NcclBatch {
 public:
  /// NCCL takes about 2048 in one group.
  static constexpr std::int64_t most_calls = 1024;

  NcclBatch(NcclLink& link, const AnyQueue& queue, std::byte* staging, std::int64_t staging_bytes,
            NcclLink::Deadline deadline)
      : link_(link), queue_(queue), staging_(staging), staging_bytes_(staging_bytes), deadline_(deadline) {}

  const AnyQueue& queue() const { return queue_; }
  std::int64_t staging_bytes() const { return staging_bytes_; }
  /// Staging memory that so many bytes take.
  static std::int64_t slot_bytes(std::int64_t bytes);

  /// Before the calls of one piece: sends those of earlier pieces where these would not fit.
  void make_room(std::int64_t calls, std::int64_t slot_bytes);
  /// Memory until the group's sums are done.
  std::byte* stage(std::int64_t bytes);
  void add(const nccl::Call& call) { calls_.push_back(call); }
  /// After the group: to = or += the contributions in order.
  void then_sum(std::vector<Contribution> contributions, std::int64_t count, Write write, float* to);
  void flush();

 private:
  struct Sum {
    std::vector<Contribution> contributions;
    std::int64_t count;
    Write write;
    float* to;
  };

  NcclLink& link_;
  const AnyQueue& queue_;
  std::byte* staging_;
  std::int64_t staging_bytes_;
  NcclLink::Deadline deadline_;
  std::vector<nccl::Call> calls_;
  std::vector<Sum> sums_;
  std::int64_t calls_asked_ = 0;
  std::int64_t bytes_asked_ = 0;
  std::int64_t staged_ = 0;
};

}  // namespace fsdp::comm
