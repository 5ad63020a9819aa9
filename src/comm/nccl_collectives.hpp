// SPDX-License-Identifier: Apache-2.0
/// @file
/// Translates each collective into NCCL calls.
#pragma once

#include <tessera/comm/transfer.hpp>

#include "nccl_batch.hpp"

namespace fsdp::comm {

/// A rank's number in a communicator, with the communicator's size.
struct NcclPlace {
  int rank = 0;
  int size = 1;
};

void add_all_gather(NcclBatch& batch, const Transfer& transfer, NcclPlace place);
/// NCCL makes float sums, in its own order, unless SumOrder::ranks is requested. In that case, and for contributions in
/// a narrower type, contributions are exchanged and summed here in rank order: each is rounded once, and results are
/// bit-identical with all other backends.
void add_reduce_scatter(NcclBatch& batch, const Transfer& transfer, NcclPlace place);
void add_all_reduce(NcclBatch& batch, const Transfer& transfer, NcclPlace place);
/// One send and one receive for each peer, in one group. The queue copies this rank's own piece.
void add_all_to_all(NcclBatch& batch, const Transfer& transfer, NcclPlace place);

}  // namespace fsdp::comm
