// SPDX-License-Identifier: Apache-2.0
/// @file
/// The part of MpiRank::Engine that fails, notifies the other ranks, and receives their notices.
#include <algorithm>
#include <exception>

#include "mpi_engine.hpp"

namespace fsdp::comm {
namespace {

/// Longest wait for messages that a failed rank sent before it failed.
constexpr std::chrono::milliseconds longest_way{100};
/// Longest wait for the other ranks to complete a transfer in which the failed rank has done its part.
constexpr std::chrono::milliseconds longest_rest{1000};
/// Interval at which a waiting rank checks for notices.
constexpr std::chrono::milliseconds hearing_interval{1};
/// Longest end phase of a failed rank whose process ends afterwards; for other ranks it is longest_end.
constexpr std::chrono::milliseconds longest_end_of_process{200};

std::string failure_of(int rank, std::string_view why) { return message("rank ", rank, " failed: ", why); }

}  // namespace

void MpiRank::Engine::require_alive() const {
  require<CollectiveError>(!failed_, "an earlier collective of this communicator failed (", failure_,
                           "); make a new communicator, or start the job again");
}

void MpiRank::Engine::end() noexcept {
  if (std::uncaught_exceptions() > exceptions_) give_up("an exception ended it");
}

void MpiRank::Engine::give_up(int origin, std::string_view why) noexcept {
  if (failed_) return;
  failed_ = true;
  try {
    const bool is_own = origin == monitor.world_rank_of(messages_.rank());
    failure_ = is_own ? std::string(why) : failure_of(origin, why);
  } catch (const std::exception&) {  // out of memory: the engine is marked failed without a reason
  }
  messages_.announce_failure(origin, why);
  leaves_messages_ = messages_.leave_behind(
      std::min(monitor.options.deadline, watch_ == nullptr ? longest_end : longest_end_of_process));
}

void MpiRank::Engine::fail(std::string_view why) {
  give_up(why);
  throw CollectiveError(std::string(why));
}

void MpiRank::Engine::fail_as(const FailureNotice& notice) {
  if (watch_ != nullptr) watch_->told_in = monitor.current;
  give_up(notice.origin, notice.text);
  throw CollectiveError(failure_of(notice.origin, notice.text));
}

/// Collects the notices of failed ranks, at most once per hearing_interval.
void MpiRank::Engine::receive_notices(Clock::time_point now) {
  if (now - heard_ < hearing_interval) return;
  heard_ = now;
  for (int look = 0; look < 2;
       ++look)  // twice, since MPI may let messages arrive after the first probe has found nothing
    while (auto notice = messages_.hear_failure()) told_.push_back({.notice = *notice, .at = now});
}

/// Throws if a rank has reported its failure. Waits first for messages that it sent before, which may be in flight and
/// complete the transfer.
void MpiRank::Engine::throw_if_a_peer_failed(const InFlight& transfer, Clock::time_point now) {
  receive_notices(now);
  for (const ReceivedNotice& told : told_)
    if (now - told.at >= (needs(transfer, told.notice.sender) ? longest_way : longest_rest)) fail_as(told.notice);
}

/// Returns whether a transfer waits for a peer.
bool MpiRank::Engine::needs(const InFlight& transfer, int peer) const {
  const Peer& other = transfer.peers[static_cast<std::size_t>(peer)];
  const bool settled = other.expected == 0 && other.unsent == 0 && !transfer.sum_to_come;
  return peer != messages_.rank() && !(other.arrived && settled);
}

}  // namespace fsdp::comm
