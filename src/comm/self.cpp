// SPDX-License-Identifier: Apache-2.0
#include <tessera/comm/self.hpp>

#include <array>
#include <chrono>

#include <tessera/comm/poll.hpp>

namespace fsdp::comm {

Ticket SelfRank::start() {
  if (queue_ && !transfer_.values) {
    queue_transfer();
    return 0;
  }
  const auto begin = std::chrono::steady_clock::now();
  if (transfer_.copies()) copy_own_piece(transfer_, 0, monitor_.options.threads);
  if (transfer_.reduces()) {
    for (const ByteSegment& segment : transfer_.segments) {
      const Contribution own{.data = segment.full};
      sum_in_order({&own, 1}, transfer_.wire, segment.count(0), transfer_.write,
                   reinterpret_cast<float*>(segment.local), monitor_.options.threads);
    }
  }
  monitor_.totals.copy_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return 0;
}

void SelfRank::queue_transfer() {
  for (const AnyEvent& event : std::exchange(after_, {})) queue_.wait(event);
  for (const ByteSegment& segment : transfer_.segments) {
    if (transfer_.copies()) queue_.move(segment.local, segment.full, segment.count(0) * transfer_.element_bytes());
    if (!transfer_.reduces()) continue;
    const std::array own{Contribution{.data = segment.full}};
    queue_.sum(own, transfer_.wire, segment.count(0), transfer_.write, reinterpret_cast<float*>(segment.local));
  }
  done_ = queue_.record();
}

void SelfRank::wait_for(const AnyEvent& event) const {
  const auto begin = std::chrono::steady_clock::now();
  const bool in_time =
      poll_until(deadline_after(begin, monitor_.options.device_deadline), [&] { return queue_.happened(event); });
  if (!in_time)
    throw CollectiveError(missed_device_deadline(std::chrono::steady_clock::now() - begin, monitor_.options));
}

}  // namespace fsdp::comm
