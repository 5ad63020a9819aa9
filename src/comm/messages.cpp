// SPDX-License-Identifier: Apache-2.0
#include "messages.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <limits>
#include <utility>
#include <vector>

#include <tessera/comm/monitor.hpp>
#include <tessera/comm/poll.hpp>

#include "mpi_library.hpp"

namespace fsdp::comm {
namespace {

/// A tag encodes a context, a transfer's number among those in flight, and a message kind.
constexpr int kinds = 16;
constexpr int transfers = 64;
constexpr int tags_of_context = kinds * transfers;

/// Returns whether MPI has been finalised.
bool is_finalized() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  return finalized != 0;
}

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

/// The MPI communicator shared by all communicators that are split from one another.
struct Messages::Duplicate {
  MPI_Comm communicator = MPI_COMM_NULL;
  int next_context = 1;
  bool abandoned = false;  ///< messages of a failed communicator may still come: MPI must not reuse its id

  Duplicate() = default;
  Duplicate(const Duplicate&) = delete;
  Duplicate& operator=(const Duplicate&) = delete;
  ~Duplicate() {
    if (communicator != MPI_COMM_NULL && !abandoned && !is_finalized()) MPI_Comm_free(&communicator);
  }
};

/// The notices that a failed rank sends: first the reason, then that it receives nothing more.
struct Messages::Notice {
  int origin = 0;
  int takes_no_more = 0;
  std::array<char, 496> text{};
};

struct Messages::State {
  std::shared_ptr<Duplicate> duplicate;
  int context = 0;
  std::vector<int> ranks;  ///< ranks in the MPI communicator, by rank in this one
  std::uint64_t trades = 0;
  std::vector<MPI_Request> requests;
  std::vector<Message> under_way;  ///< message of each request
  std::vector<int> indices;        ///< requests that the last poll completed
  std::vector<Message> completed;
  Notice told, ended;
  std::vector<char> takes_no_more;  ///< by rank: whether this failed peer has reported that it receives nothing more

  int tag_of(const Message& message) const {
    return context * tags_of_context + static_cast<int>(message.transfer % transfers) * kinds +
           static_cast<int>(message.kind);
  }
};

Messages::Messages(const void* communicator, Deadline deadline) : Messages(std::make_unique<State>()) {
  auto made = std::make_unique<Duplicate>();
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Comm_idup(*static_cast<const MPI_Comm*>(communicator), &made->communicator, &request), "MPI_Comm_idup");
  const auto waited = poll_in_vain(deadline, [&request] {
    int done = 0;
    check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Comm_idup");
    return done != 0;
  });
  if (waited) {
    static_cast<void>(made.release());  // leaked, since MPI writes to it when the other ranks call MPI_Comm_idup
    throw CollectiveError(missed_deadline(*waited, "the other ranks to make a communicator", {.deadline = deadline}));
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

void Messages::start(const Message& message, std::byte* data, std::int64_t bytes) {
  state_->under_way.push_back(message);
  MPI_Request* const request = &state_->requests.emplace_back(MPI_REQUEST_NULL);
  const MPI_Comm communicator = state_->duplicate->communicator;
  const int peer = state_->ranks[static_cast<std::size_t>(message.peer)], tag = state_->tag_of(message);
  if (message.sent)
    check_mpi(MPI_Isend(data, length_of(bytes), MPI_BYTE, peer, tag, communicator, request), "MPI_Isend");
  else
    check_mpi(MPI_Irecv(data, length_of(bytes), MPI_BYTE, peer, tag, communicator, request), "MPI_Irecv");
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

void Messages::exchange(std::span<const std::byte> mine, std::span<std::byte> all, Deadline deadline) {
  struct Memory {  // buffers of the messages, which must outlive them if the exchange fails
    std::vector<std::byte> mine, all;
  };
  auto memory = std::make_unique<Memory>(Memory{.mine = {mine.begin(), mine.end()}, .all = {}});
  memory->all.resize(all.size());
  const std::int64_t bytes = std::ssize(all) / size_, step = mine.size() == all.size() ? bytes : 0;
  Message message{.transfer = state_->trades++, .kind = MessageKind::setup};
  try {
    for (int peer = 0; peer < size_; ++peer) {
      std::byte* const theirs = memory->all.data() + peer * bytes;
      std::byte* const own = memory->mine.data() + peer * step;
      if (peer == rank_) {
        std::memcpy(theirs, own, static_cast<std::size_t>(bytes));
        continue;
      }
      message.peer = peer;
      for (const bool sent : {false, true}) {
        message.sent = sent;
        start(message, sent ? own : theirs, bytes);
      }
    }
    await_exchange(deadline);
  } catch (const std::exception& error) {
    announce_failure(rank_, error.what());
    if (leave_behind(std::min<Deadline>(deadline, longest_end))) static_cast<void>(memory.release());
    throw;
  }
  std::copy(memory->all.begin(), memory->all.end(), all.begin());
}

void Messages::await_exchange(Deadline deadline) {
  const auto waited = poll_in_vain(deadline, [this] {
    poll();
    if (state_->requests.empty()) return true;
    if (const auto notice = hear_failure())
      throw CollectiveError(message("rank ", notice->origin, " failed: ", notice->text));
    return false;
  });
  if (!waited) return;
  std::string missing;
  for (const Message& message : state_->under_way)
    if (!message.sent) missing += fsdp::message(missing.empty() ? "" : ", ", "rank ", message.peer, " (has not come)");
  throw CollectiveError(
      missed_deadline(*waited, missing.empty() ? "the other ranks" : missing, {.deadline = deadline}));
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

void Messages::announce_failure(int origin, std::string_view text) noexcept {
  if (is_finalized()) return;
  state_->told = {.origin = origin};
  text.copy(state_->told.text.data(), state_->told.text.size() - 1);
  tell(state_->told);
}

/// Sends a notice to all peers. The notice must stay at its address until it is sent.
void Messages::tell(Notice& notice) noexcept {
  try {
    for (int peer = 0; peer < size_; ++peer)
      if (peer != rank_)
        start({.kind = MessageKind::failure, .sent = true, .peer = peer}, reinterpret_cast<std::byte*>(&notice),
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
      // A message may still access this rank's memory if it is to be received, or if the peer may have begun to receive
      // it.
      return std::ranges::none_of(state.under_way, [&](const Message& message) {
        return !message.sent || state.takes_no_more[static_cast<std::size_t>(message.peer)] == 0;
      });
    });
  } catch (const std::exception&) {  // MPI itself has failed
  }
  return !state.requests.empty();
}

}  // namespace fsdp::comm
