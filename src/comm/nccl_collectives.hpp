// SPDX-License-Identifier: Apache-2.0
/// @file
/// Translates each collective of tensors into groups of NCCL calls, and the sums that follow them.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/comm/queued_core.hpp>
#include <tessera/comm/transfer.hpp>

#include "nccl_link.hpp"

namespace fsdp::comm {

/// One rank of an NCCL communicator, with the queue and the device memory that its collectives use.
struct NcclLane {
  int rank = 0;
  int size = 1;
  NcclLink& link;
  const AnyQueue& queue;
  std::byte* staging = nullptr;
  std::int64_t staging_bytes = 0;
  NcclLink::Deadline deadline{};
};

/// Enqueues a collective of tensors.
///
/// NCCL makes float sums, in its own order, unless SumOrder::ranks is requested. In that case, and for contributions in
/// a narrower type, contributions are exchanged and summed here in rank order: each is rounded once, and results are
/// bit-identical with all other backends. An all_to_all is one send and one receive for each peer, in one group; the
/// queue copies this rank's own piece.
void enqueue_collective(const NcclLane& lane, const Transfer& transfer);

}  // namespace fsdp::comm
