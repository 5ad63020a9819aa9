// SPDX-License-Identifier: Apache-2.0
#include <tessera/comm/self.hpp>

#include <array>

#include <tessera/comm/poll.hpp>

namespace fsdp::comm {

Ticket SelfRank::start() {
  if (queue_ && !transfer_.values) {
    for (const AnyEvent& event : std::exchange(after_, {})) queue_.wait(event);
    for (const ByteSegment& segment : transfer_.segments) {
      if (transfer_.copies()) queue_.move(segment.local, segment.full, segment.count(0) * transfer_.element_bytes());
      if (!transfer_.reduces()) continue;
      const std::array own{Contribution{.data = segment.full}};
      queue_.sum(own, transfer_.wire, segment.count(0), transfer_.write, reinterpret_cast<float*>(segment.local));
    }
    done_ = queue_.record();
    return 0;
  }
  const Stopwatch copying(monitor_.totals.copy_seconds);
  if (transfer_.copies()) copy_own_piece(transfer_, 0, monitor_.options.threads);
  if (transfer_.reduces()) {
    for (const ByteSegment& segment : transfer_.segments) {
      const Contribution own{.data = segment.full};
      sum_in_order({&own, 1}, transfer_.wire, segment.count(0), transfer_.write,
                   reinterpret_cast<float*>(segment.local), monitor_.options.threads);
    }
  }
  return 0;
}

}  // namespace fsdp::comm
