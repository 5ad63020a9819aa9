// SPDX-License-Identifier: Apache-2.0
/// @file
/// The part of Messages that a failed rank uses: it sends notices to the others and ends the messages in flight.
#include <algorithm>
#include <exception>
#include <utility>

#include <tessera/comm/poll.hpp>

#include "messages_state.hpp"

namespace fsdp::comm {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

void Messages::tell_failure(int origin, std::string_view text) noexcept {
  if (is_finalized()) return;
  state_->told = {.origin = origin};
  text.copy(state_->told.text.data(), state_->told.text.size() - 1);
  tell(state_->told);
}

/// Sends a notice to all peers. The notice must stay at its address until it is sent.
void Messages::tell(const Notice& notice) noexcept {
  try {
    for (int peer = 0; peer < size_; ++peer)
      if (peer != rank_)
        send({.kind = MessageKind::failure, .sent = true, .peer = peer}, reinterpret_cast<const std::byte*>(&notice),
             sizeof notice);
  } catch (const std::exception&) {  // the other ranks notice the failure at their deadline
  }
}

std::optional<FailureNotice> Messages::hear_failure() {
  const int tag = state_->tag_of({.kind = MessageKind::failure});
  MPI_Comm communicator = state_->duplicate->communicator;
  for (;;) {
    int found = 0;
    MPI_Status status;
    check_mpi(MPI_Iprobe(MPI_ANY_SOURCE, tag, communicator, &found, &status), "MPI_Iprobe");
    if (found == 0) return std::nullopt;
    Notice notice;
    check_mpi(MPI_Recv(&notice, sizeof notice, MPI_BYTE, status.MPI_SOURCE, tag, communicator, MPI_STATUS_IGNORE),
              "MPI_Recv");
    const auto sender = std::ranges::find(state_->ranks, status.MPI_SOURCE) - state_->ranks.begin();
    if (notice.takes_no_more == 0)
      return FailureNotice{
          .sender = static_cast<int>(sender), .origin = notice.origin, .text = std::string(notice.text.data())};
    state_->takes_no_more[static_cast<std::size_t>(sender)] = 1;
  }
}

/// Returns whether a message in flight may still access this rank's memory: a message to receive, or one to a peer that
/// may have begun to receive it.
bool Messages::needs_memory(const Message& message) const {
  return !message.sent || state_->takes_no_more[static_cast<std::size_t>(message.peer)] == 0;
}

bool Messages::leave_behind(Deadline limit) noexcept {
  State& state = *state_;
  state.duplicate->abandoned = true;
  if (is_finalized()) return false;
  for (std::size_t i = 0; i < state.requests.size(); ++i)
    if (!state.under_way[i].sent && state.requests[i] != MPI_REQUEST_NULL) MPI_Cancel(&state.requests[i]);
  state.ended = {.takes_no_more = 1};
  bool has_told = false;
  try {
    poll_until(Clock::now() + limit, [&] {
      poll();
      while (hear_failure()) continue;
      const bool receives = std::ranges::any_of(state.under_way, [](const Message& message) { return !message.sent; });
      if (!receives && !std::exchange(has_told, true)) tell(state.ended);
      return std::ranges::none_of(state.under_way, [this](const Message& message) { return needs_memory(message); });
    });
  } catch (const std::exception&) {  // MPI itself has failed
  }
  return !state.requests.empty();
}

}  // namespace fsdp::comm
