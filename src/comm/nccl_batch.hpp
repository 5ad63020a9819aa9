// SPDX-License-Identifier: Apache-2.0
/// @file
/// A batch of NCCL calls that run as one group, and the sums that follow it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/comm/nccl_table.hpp>
#include <tessera/comm/queued_core.hpp>

#include "nccl_link.hpp"

namespace fsdp::comm {

/// Collects calls until a group is full. All ranks must split their calls into groups at the same points, or a send
/// would wait for a receive in a later group. Therefore make_room takes the maximum that any rank needs.
class NcclBatch {
 public:
  /// Most calls per group; NCCL's limit is about 2048.
  static constexpr std::int64_t most_calls = 1024;

  NcclBatch(NcclLink& link, const AnyQueue& queue, std::byte* staging, std::int64_t staging_bytes,
            NcclLink::Deadline deadline)
      : link_(link), queue_(queue), staging_(staging), staging_bytes_(staging_bytes), deadline_(deadline) {}

  const AnyQueue& queue() const { return queue_; }
  std::int64_t staging_bytes() const { return staging_bytes_; }
  /// Returns the size of the staging memory for `bytes` bytes, including alignment.
  static std::int64_t slot_bytes(std::int64_t bytes);

  /// Reserves room for the calls and staging of one piece. Flushes earlier pieces if it would not fit.
  void make_room(std::int64_t calls, std::int64_t slot_bytes);
  /// Returns staging memory, valid until the group's sums are done.
  std::byte* stage(std::int64_t bytes);
  void add(const nccl::Call& call) { calls_.push_back(call); }
  /// Adds a sum to run after the group: to = (or +=) the contributions in order.
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
