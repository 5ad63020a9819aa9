// SPDX-License-Identifier: Apache-2.0
#include "nccl_batch.hpp"

#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/device/memory.hpp>

namespace fsdp::comm {

std::int64_t NcclBatch::slot_bytes(std::int64_t bytes) { return round_up(bytes, device::alignment); }

void NcclBatch::make_room(std::int64_t calls, std::int64_t slot_bytes) {
  if (calls_asked_ + calls > most_calls || bytes_asked_ + slot_bytes > staging_bytes_) flush();
  calls_asked_ += calls;
  bytes_asked_ += slot_bytes;
}

std::byte* NcclBatch::stage(std::int64_t bytes) {
  std::byte* const slot = staging_ + staged_;
  staged_ += slot_bytes(bytes);
  require(staged_ <= bytes_asked_ && staged_ <= staging_bytes_, "NCCL staging: ", staged_, " bytes are used of ",
          bytes_asked_, " asked for and ", staging_bytes_, " that there are");
  return slot;
}

void NcclBatch::then_sum(std::vector<Contribution> contributions, std::int64_t count, Write write, float* to) {
  sums_.push_back({.contributions = std::move(contributions), .count = count, .write = write, .to = to});
}

void NcclBatch::flush() {
  link_.issue(calls_, queue_.native, deadline_);
  for (const Sum& sum : sums_) queue_.sum(sum.contributions, sum.contributions[0].stored, sum.count, sum.write, sum.to);
  calls_.clear();
  sums_.clear();
  calls_asked_ = bytes_asked_ = staged_ = 0;
}

}  // namespace fsdp::comm
