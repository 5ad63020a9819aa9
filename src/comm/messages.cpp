// SPDX-License-Identifier: Apache-2.0
/// @file
///
#include "messages.hpp"

#include <algorithm>
#include <cstring>
#include <exception>
#include <limits>
#include <utility>

#include <tessera/comm/monitor.hpp>
#include <tessera/comm/poll.hpp>

#include "messages_state.hpp"

namespace fsdp::comm {
namespace {

using Clock = std::chrono::steady_clock;

int length_of(std::int64_t bytes) {
  require(bytes >= 0 && bytes <= std::numeric_limits<int>::max(), "one MPI message cannot have ", bytes, " bytes");
  return static_cast<int>(bytes);
}

/// Returns the largest context whose tags are within MPI's limit.
int largest_context() {
  void* largest_tag = nullptr;
  int found = 0;
  check_mpi(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, static_cast<void*>(&largest_tag), &found),
            "MPI_Comm_get_attr");
  const int largest = found != 0 ? *static_cast<const int*>(largest_tag) : 32767;
  return (largest - tags_of_context + 1) / tags_of_context;
}

}  // namespace

Messages::Messages(const void* communicator, Deadline deadline) : Messages(std::make_unique<State>()) {
  auto made = std::make_unique<Duplicate>();
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Comm_idup(*static_cast<const MPI_Comm*>(communicator), &made->communicator, &request), "MPI_Comm_idup");
  const Clock::time_point begin = Clock::now();
  const bool in_time = poll_until(deadline_after(begin, deadline), [&request] {
    int done = 0;
    check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Comm_idup");
    return done != 0;
  });
  if (!in_time) {
    static_cast<void>(made.release());  // leaked, since MPI writes to it when the other ranks call MPI_Comm_idup
    throw CollectiveError(
        missed_deadline(Clock::now() - begin, "the other ranks to make a communicator", {.deadline = deadline}));
  }
  check_mpi(MPI_Comm_set_errhandler(made->communicator, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check_mpi(MPI_Comm_rank(made->communicator, &rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(made->communicator, &size_), "MPI_Comm_size");
  state_->duplicate = std::move(made);
  for (int rank = 0; rank < size_; ++rank) state_->ranks.push_back(rank);
  state_->takes_no_more.resize(state_->ranks.size());
}
Messages::Messages(std::unique_ptr<State> state) : state_(std::move(state)) {}
Messages::Messages(Messages&&) noexcept = default;
Messages::~Messages() {
  // A notice in flight is read from the state, so the state is leaked, with the MPI communicator that its messages use.
  if (state_ && !state_->requests.empty()) static_cast<void>(state_.release());
}

void Messages::send(const Message& message, const std::byte* data, std::int64_t bytes) {
  MPI_Request* const request = state_->add(message);
  check_mpi(MPI_Isend(data, length_of(bytes), MPI_BYTE, state_->rank_of(message), state_->tag_of(message),
                      state_->duplicate->communicator, request),
            "MPI_Isend");
}

void Messages::receive(const Message& message, std::byte* data, std::int64_t bytes) {
  MPI_Request* const request = state_->add(message);
  check_mpi(MPI_Irecv(data, length_of(bytes), MPI_BYTE, state_->rank_of(message), state_->tag_of(message),
                      state_->duplicate->communicator, request),
            "MPI_Irecv");
}

std::span<const Message> Messages::poll() {
  State& state = *state_;
  state.completed.clear();
  if (state.requests.empty()) return {};
  state.indices.resize(state.requests.size());
  int count = 0;
  const int code = MPI_Testsome(static_cast<int>(state.requests.size()), state.requests.data(), &count,
                                state.indices.data(), MPI_STATUSES_IGNORE);
  if (code == MPI_SUCCESS) {
    if (count == 0) return {};
    for (int i = 0; i < count; ++i)
      state.completed.push_back(state.under_way[static_cast<std::size_t>(state.indices[static_cast<std::size_t>(i)])]);
  }
  std::size_t kept = 0;  // also after an error: MPI has freed the requests that it completed
  for (std::size_t index = 0; index < state.requests.size(); ++index) {
    if (state.requests[index] == MPI_REQUEST_NULL) continue;
    state.requests[kept] = state.requests[index];
    state.under_way[kept++] = state.under_way[index];
  }
  state.requests.resize(kept);
  state.under_way.resize(kept);
  check_mpi(code, "MPI_Testsome");
  return state.completed;
}

/// The buffers of an exchange: this rank sends rank r the `bytes` bytes at `mine` + r * `step`.
struct Messages::Parts {
  std::span<const std::byte> mine;
  std::int64_t bytes = 0;
  std::int64_t step = 0;
  std::span<std::byte> all;
};

void Messages::exchange(std::span<const std::byte> mine, std::span<std::byte> all, Deadline deadline) {
  trade({.mine = mine, .bytes = std::ssize(mine), .step = 0, .all = all}, deadline);
}

void Messages::exchange_each(std::span<const std::byte> mine, std::span<std::byte> all, Deadline deadline) {
  trade({.mine = mine, .bytes = 1, .step = 1, .all = all}, deadline);
}

void Messages::trade(const Parts& parts, Deadline deadline) {
  struct Memory {  // buffers of the messages, which must outlive them if the exchange fails
    std::vector<std::byte> mine, all;
  };
  auto memory = std::make_unique<Memory>(Memory{.mine = {parts.mine.begin(), parts.mine.end()}, .all = {}});
  memory->all.resize(parts.all.size());
  const std::uint64_t number = state_->trades++;
  try {
    for (int peer = 0; peer < size_; ++peer) {
      const Message message{.transfer = number, .kind = MessageKind::setup, .peer = peer};
      std::byte* const theirs = memory->all.data() + peer * parts.bytes;
      const std::byte* const mine = memory->mine.data() + peer * parts.step;
      if (peer == rank_) {
        std::memcpy(theirs, mine, static_cast<std::size_t>(parts.bytes));
        continue;
      }
      receive(message, theirs, parts.bytes);
      send({.transfer = number, .kind = MessageKind::setup, .sent = true, .peer = peer}, mine, parts.bytes);
    }
    await_trade(deadline);
  } catch (const std::exception& error) {
    tell_failure(rank_, error.what());
    if (leave_behind(std::min<Deadline>(deadline, longest_end))) static_cast<void>(memory.release());
    throw;
  }
  std::copy(memory->all.begin(), memory->all.end(), parts.all.begin());
}

void Messages::await_trade(Deadline deadline) {
  const Clock::time_point begin = Clock::now();
  const bool in_time = poll_until(deadline_after(begin, deadline), [this] {
    poll();
    if (state_->requests.empty()) return true;
    if (const auto notice = hear_failure())
      throw CollectiveError(message("rank ", notice->origin, " failed: ", notice->text));
    return false;
  });
  if (in_time) return;
  std::string missing;
  for (const Message& message : state_->under_way)
    if (!message.sent) missing += fsdp::message(missing.empty() ? "" : ", ", "rank ", message.peer, " (has not come)");
  throw CollectiveError(
      missed_deadline(Clock::now() - begin, missing.empty() ? "the other ranks" : missing, {.deadline = deadline}));
}

void Messages::library_all_gather(std::span<const float> local, std::span<float> full) {
  require(state_->context == 0, "MPI's own collectives are called on the communicator of all processes only");
  const int count = length_of(std::ssize(local));
  check_mpi(
      MPI_Allgather(local.data(), count, MPI_FLOAT, full.data(), count, MPI_FLOAT, state_->duplicate->communicator),
      "MPI_Allgather");
}

void Messages::library_reduce_scatter(std::span<const float> full, std::span<float> local) {
  require(state_->context == 0, "MPI's own collectives are called on the communicator of all processes only");
  check_mpi(MPI_Reduce_scatter_block(full.data(), local.data(), length_of(std::ssize(local)), MPI_FLOAT, MPI_SUM,
                                     state_->duplicate->communicator),
            "MPI_Reduce_scatter_block");
}

int Messages::free_context() const { return state_->duplicate->next_context; }

Messages Messages::part(std::span<const int> ranks, int context) const {
  static const int largest = largest_context();
  require(context <= largest, "communicators were split ", context, " times, and MPI has tags for ", largest,
          "; keep those that were made");
  auto state = std::make_unique<State>();
  state->duplicate = state_->duplicate;
  state->duplicate->next_context = context + 1;
  state->context = context;
  for (const int rank : ranks) state->ranks.push_back(state_->ranks[static_cast<std::size_t>(rank)]);
  state->takes_no_more.resize(state->ranks.size());
  Messages made(std::move(state));
  made.rank_ = static_cast<int>(std::ranges::find(ranks, rank_) - ranks.begin());
  made.size_ = static_cast<int>(ranks.size());
  return made;
}

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
