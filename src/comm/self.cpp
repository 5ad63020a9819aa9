// SPDX-License-Identifier: Apache-2.0
#include <comm/self.hpp>

#include <chrono>

namespace fsdp::comm {

Ticket SelfRank::start() {
  const auto begin = std::chrono::steady_clock::now();
  if (transfer_.op == Op::all_gather) copy_own_piece(transfer_, 0);
  if (transfer_.reduces()) {
    for (const ByteSegment& segment : transfer_.segments) {
      const Contribution own{.data = segment.full};
      sum_in_order({&own, 1}, transfer_.wire, segment.count(0), transfer_.write,
                   reinterpret_cast<float*>(segment.local));
    }
  }
  monitor_.totals.copy_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return 0;
}

}  // namespace fsdp::comm
