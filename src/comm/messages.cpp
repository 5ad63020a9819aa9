// SPDX-License-Identifier: Apache-2.0
#include "messages.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <thread>
#include <utility>

// Excludes the C++ bindings that MPI 3 removed; they would have to be linked.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <tessera/comm/launch.hpp>
#include <tessera/comm/monitor.hpp>
#include <tessera/fsdp/core/hash.hpp>
#include <tessera/fsdp/core/identity.hpp>

#include "watchdog.hpp"

namespace fsdp::comm {
namespace {

void check(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  throw CollectiveError(message(call, " failed: ", std::string_view(text.data(), static_cast<std::size_t>(length))));
}

/// Ranks start transfers in the same order, so a tag only has to distinguish those in flight at once. MPI guarantees
/// 2^15 tags.
int tag_of(const Message& message) {
  return static_cast<int>(message.transfer % 4096) * 8 + static_cast<int>(message.kind);
}

int length_of(std::int64_t bytes) {
  require(bytes >= 0 && bytes <= std::numeric_limits<int>::max(), "one MPI message cannot have ", bytes, " bytes");
  return static_cast<int>(bytes);
}

constexpr std::chrono::seconds longest_start{60};

/// The limit of blocking MPI calls, which have no timeout of their own.
std::chrono::milliseconds longest_wait_of_calls = std::chrono::hours(24);
std::string this_process = "a rank";

Watchdog watched(const char* call) { return {this_process + ", " + call + ",", longest_wait_of_calls}; }

}  // namespace

struct Messages::State {
  MPI_Comm communicator = MPI_COMM_NULL;
  std::vector<MPI_Request> requests;
  std::vector<Message> under_way;  ///< by request
  std::vector<int> indices;        ///< completed by the last poll
  std::vector<Message> completed;

  ~State() {
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (communicator != MPI_COMM_NULL && finalized == 0) MPI_Comm_free(&communicator);
  }
  MPI_Request* add(const Message& message) {
    under_way.push_back(message);
    return &requests.emplace_back(MPI_REQUEST_NULL);
  }
};

Messages::Messages() : Messages(std::make_unique<State>()) {
  const Watchdog watch = watched("MPI_Comm_dup");
  check(MPI_Comm_dup(MPI_COMM_WORLD, &state_->communicator), "MPI_Comm_dup");
  check(MPI_Comm_set_errhandler(state_->communicator, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check(MPI_Comm_rank(state_->communicator, &rank_), "MPI_Comm_rank");
  check(MPI_Comm_size(state_->communicator, &size_), "MPI_Comm_size");
}
Messages::Messages(std::unique_ptr<State> state) : state_(std::move(state)) {}
Messages::Messages(Messages&&) noexcept = default;
Messages::~Messages() = default;

void Messages::send(const Message& message, const std::byte* data, std::int64_t bytes) {
  MPI_Request* const request = state_->add(message);
  check(MPI_Isend(data, length_of(bytes), MPI_BYTE, message.peer, tag_of(message), state_->communicator, request),
        "MPI_Isend");
}

void Messages::receive(const Message& message, std::byte* data, std::int64_t bytes) {
  MPI_Request* const request = state_->add(message);
  check(MPI_Irecv(data, length_of(bytes), MPI_BYTE, message.peer, tag_of(message), state_->communicator, request),
        "MPI_Irecv");
}

std::span<const Message> Messages::poll() {
  State& state = *state_;
  state.completed.clear();
  if (state.requests.empty()) return {};
  state.indices.resize(state.requests.size());
  int count = 0;
  check(MPI_Testsome(static_cast<int>(state.requests.size()), state.requests.data(), &count, state.indices.data(),
                     MPI_STATUSES_IGNORE),
        "MPI_Testsome");
  for (int i = 0; i < count; ++i)
    state.completed.push_back(state.under_way[static_cast<std::size_t>(state.indices[static_cast<std::size_t>(i)])]);
  if (count == 0) return {};
  std::size_t kept = 0;
  for (std::size_t index = 0; index < state.requests.size(); ++index) {
    if (state.requests[index] == MPI_REQUEST_NULL) continue;
    state.requests[kept] = state.requests[index];
    state.under_way[kept++] = state.under_way[index];
  }
  state.requests.resize(kept);
  state.under_way.resize(kept);
  return state.completed;
}

void Messages::exchange(std::span<const std::byte> mine, std::span<std::byte> all) {
  const Watchdog watch = watched("MPI_Allgather");
  const int length = length_of(static_cast<std::int64_t>(mine.size()));
  check(MPI_Allgather(mine.data(), length, MPI_BYTE, all.data(), length, MPI_BYTE, state_->communicator),
        "MPI_Allgather");
}

void Messages::exchange_each(std::span<const std::byte> mine, std::span<std::byte> all) {
  const Watchdog watch = watched("MPI_Alltoall");
  check(MPI_Alltoall(mine.data(), 1, MPI_BYTE, all.data(), 1, MPI_BYTE, state_->communicator), "MPI_Alltoall");
}

void Messages::library_all_gather(std::span<const float> local, std::span<float> full) {
  const int count = length_of(static_cast<std::int64_t>(local.size()));
  check(MPI_Allgather(local.data(), count, MPI_FLOAT, full.data(), count, MPI_FLOAT, state_->communicator),
        "MPI_Allgather");
}

void Messages::library_reduce_scatter(std::span<const float> full, std::span<float> local) {
  const int count = length_of(static_cast<std::int64_t>(local.size()));
  check(MPI_Reduce_scatter_block(full.data(), local.data(), count, MPI_FLOAT, MPI_SUM, state_->communicator),
        "MPI_Reduce_scatter_block");
}

Messages Messages::split(int color) {
  Messages part(std::make_unique<State>());
  const Watchdog watch = watched("MPI_Comm_split");
  check(MPI_Comm_split(state_->communicator, color, rank_, &part.state_->communicator), "MPI_Comm_split");
  check(MPI_Comm_set_errhandler(part.state_->communicator, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check(MPI_Comm_rank(part.state_->communicator, &part.rank_), "MPI_Comm_rank");
  check(MPI_Comm_size(part.state_->communicator, &part.size_), "MPI_Comm_size");
  return part;
}

void Messages::leave_behind() noexcept {
  if (state_) state_->communicator = MPI_COMM_NULL;
}

MpiProcess::MpiProcess(std::chrono::milliseconds deadline) {
  if (const LaunchedJob job = launched_job(); !job.launcher.empty()) this_process = message("rank ", job.rank);
  this_process += message(" (host ", machine_name(), ")");
  longest_wait_of_calls = std::max<std::chrono::milliseconds>(deadline, longest_start);  // hosts start one by one
  {
    const Watchdog watch = watched("MPI_Init");
    int provided = 0;
    check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
  }
  longest_wait_of_calls = deadline;
}

MpiProcess::~MpiProcess() {
  const Watchdog watch = watched("MPI_Finalize");
  MPI_Finalize();
}

int MpiProcess::rank() const {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

bool MpiProcess::agree(std::span<const std::byte> bytes) {
  constexpr std::chrono::seconds longest_wait{2};
  const std::uint64_t hash = hashed(hash_seed, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  // Static, because MPI may write to these after the deadline.
  static std::array<std::uint64_t, 2> mine;
  static std::array<std::uint64_t, 2> least;
  mine = {hash, ~hash};
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Iallreduce(mine.data(), least.data(), 2, MPI_UINT64_T, MPI_MIN, MPI_COMM_WORLD, &request);
  const auto deadline = std::chrono::steady_clock::now() + longest_wait;
  int done = 0;
  while (done == 0 && std::chrono::steady_clock::now() < deadline) {
    MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    std::this_thread::yield();
  }
  return done != 0 && least[0] == hash && least[1] == ~hash;
}

void MpiProcess::abort(int status) {
  MPI_Abort(MPI_COMM_WORLD, status);
  std::_Exit(status);
}

}  // namespace fsdp::comm
