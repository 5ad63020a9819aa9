// SPDX-License-Identifier: Apache-2.0
/// @file
/// The part of Messages that a failed rank needs: notices to the others, and an end for what is in flight.
#include <algorithm>
#include <exception>
#include <thread>

#include "messages_state.hpp"

namespace fsdp::comm {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

void Messages::tell_failure(int origin, std::string_view text) noexcept {
  if (is_finalized()) return;
  State::Notice& notice = state_->told;
  notice = {.origin = origin};
  text.copy(notice.text.data(), notice.text.size() - 1);
  try {
    for (int peer = 0; peer < size_; ++peer)
      if (peer != rank_)
        send({.kind = MessageKind::failure, .sent = true, .peer = peer}, reinterpret_cast<const std::byte*>(&notice),
             sizeof notice);
  } catch (const std::exception&) {  // the others learn it at their deadline
  }
}

std::optional<FailureNotice> Messages::hear_failure() {
  const int tag = state_->tag_of({.kind = MessageKind::failure});
  MPI_Comm communicator = state_->duplicate->communicator;
  int found = 0;
  MPI_Status status;
  check_mpi(MPI_Iprobe(MPI_ANY_SOURCE, tag, communicator, &found, &status), "MPI_Iprobe");
  if (found == 0) return std::nullopt;
  State::Notice notice;
  check_mpi(MPI_Recv(&notice, sizeof notice, MPI_BYTE, status.MPI_SOURCE, tag, communicator, MPI_STATUS_IGNORE),
            "MPI_Recv");
  const auto sender = std::ranges::find(state_->ranks, status.MPI_SOURCE) - state_->ranks.begin();
  return FailureNotice{
      .sender = static_cast<int>(sender), .origin = notice.origin, .text = std::string(notice.text.data())};
}

bool Messages::leave_behind(Deadline limit) noexcept {
  // Long enough for a peer that has begun to take a message, or a notice: later it sees the notice first.
  constexpr std::chrono::milliseconds patience{200};
  State& state = *state_;
  state.duplicate->abandoned = true;
  if (is_finalized()) return false;
  for (std::size_t i = 0; i < state.requests.size(); ++i)
    if (!state.under_way[i].sent) MPI_Cancel(&state.requests[i]);
  const Clock::time_point begin = Clock::now();
  Clock::time_point last = begin;
  try {
    while (!state.requests.empty()) {
      const bool moved = !poll().empty();
      const Clock::time_point now = Clock::now();
      if (moved) last = now;
      const bool receives = std::ranges::any_of(state.under_way, [](const Message& message) { return !message.sent; });
      if (now - begin >= limit || (!receives && now - last >= patience)) break;
      std::this_thread::yield();
    }
  } catch (const std::exception&) {  // MPI itself has failed
  }
  return !state.requests.empty();
}

}  // namespace fsdp::comm
