// SPDX-License-Identifier: Apache-2.0
/// @file
/// ThreadsRank on an asynchronous device: the events that its queue waits for, and how hosts wait for queues.
#include <exception>

#include <tessera/comm/poll.hpp>
#include <tessera/comm/threads.hpp>

#include "threads_group.hpp"

namespace fsdp::comm {

/// Makes this rank's queue wait until it may read a peer's tensors of the active transfer. An all_reduce waits for the
/// peer's caller events before it sums, and for the peer's sums before it gathers.
void ThreadsRank::join(const Transfer& transfer, int peer) {
  if (!on_queue(transfer)) return;
  const Milestones& theirs = group_->peer(peer).milestones[active_ % ThreadsPeer::depth];
  if (own().finished.load() == 2 * active_ + 1) {
    queue_.wait(theirs.reduced);
  } else {
    for (const AnyEvent& event : theirs.published) queue_.wait(event);
  }
}

AnyEvent ThreadsRank::done(Ticket ticket) {
  wait(ticket);
  for (; joined_ <= ticket; ++joined_) {
    AnyEvent& event = done_[joined_ % ThreadsPeer::depth];
    event = nullptr;
    if (!on_queue(own_transfer(joined_))) continue;
    for (int peer = 0; peer < size(); ++peer)
      joins_.wait(group_->peer(peer).milestones[joined_ % ThreadsPeer::depth].finished);
    event = last_done_ = joins_.record();
  }
  // An old transfer's slot has been reused; a later event on the same queue implies its completion.
  return joined_ - ticket > ThreadsPeer::depth ? last_done_ : done_[ticket % ThreadsPeer::depth];
}

void ThreadsRank::wait_for(const AnyEvent& event) {
  const auto waited = poll_in_vain(monitor_.options.device_deadline, [&] {
    if (queue_.happened(event)) return true;
    progress();
    throw_if_poisoned();
    return false;
  });
  if (waited) fail(missed_device_deadline(*waited, monitor_.options));
}

/// Waits for all transfers and for this rank's queue, before its memory and queue are destroyed.
void ThreadsRank::finish_queued() noexcept {
  if (!queue_ || next_ == 0) return;
  try {
    wait_for(done(next_ - 1));
    wait_for(queue_.record());
  } catch (const std::exception&) {  // the failure was reported, and let_queues_finish has waited for all queues
  }
}

/// After a failure, waits for all ranks' queues until the deadline. No more work is enqueued at this point.
void ThreadsRank::let_queues_finish() const noexcept {
  if (!queue_) return;
  const Clock::time_point deadline = deadline_after(Clock::now(), monitor_.options.deadline);
  for (int peer = 0; peer < size(); ++peer) {
    try {
      poll_until(deadline, [&] { return queue_.happened(group_->peer(peer).latest); });
    } catch (const std::exception&) {  // a lost device no longer reads memory
    }
  }
}

}  // namespace fsdp::comm
