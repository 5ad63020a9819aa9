// SPDX-License-Identifier: Apache-2.0
#include <tessera/comm/queued_core.hpp>

#include <vector>

#include <tessera/comm/poll.hpp>

namespace fsdp::comm {

void AnyQueue::sum(std::span<const Contribution> contributions, DType wire, std::int64_t count, Write write,
                   float* to) const {
  if (count == 0) return;
  std::vector<const std::byte*> parts;
  for (const Contribution& contribution : contributions) parts.push_back(contribution.data);
  calls_->sum(queue_.get(), parts, contributions[0].stored, wire, count, write, to);
}

void await_event(const AnyQueue& queue, const AnyEvent& event, const Options& options) {
  if (const auto waited = poll_in_vain(options.device_deadline, [&] { return queue.happened(event); }))
    throw CollectiveError(missed_device_deadline(*waited, options));
}

}  // namespace fsdp::comm
