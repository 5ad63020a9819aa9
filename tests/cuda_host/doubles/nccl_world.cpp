// SPDX-License-Identifier: Apache-2.0
#include "nccl_world.hpp"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <cstring>
#include <ctime>
#include <map>
#include <mutex>
#include <new>

#include <tessera/fsdp/core/error.hpp>

namespace fsdp::testing::cuda_host {
namespace {

using comm::nccl::Call;

// A world is followed by two messages per rank, with its calls and their data. Pages that are never written use no
// memory.
constexpr std::int64_t header_bytes = 4096, message_bytes = std::int64_t{64} << 20;
constexpr std::int64_t world_bytes = header_bytes + 2 * NcclWorld::most_ranks * message_bytes;

std::int64_t bytes_sent(const Call& call, int rank, int size) {
  const std::int64_t bytes = call.count * size_of(call.dtype);
  switch (call.kind) {
    case Call::Kind::reduce_scatter: return size * bytes;
    case Call::Kind::broadcast: return call.peer == rank ? bytes : 0;
    case Call::Kind::receive: return 0;
    default: return bytes;
  }
}

/// Maps a file or new memory. Either starts as zeros, which is a world without ranks.
void* map_world(const std::string& folder, const std::string& name) {
  int file = -1;
  if (!folder.empty()) {
    file = ::open((folder + "/" + name).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    require(file >= 0 && ::ftruncate(file, world_bytes) == 0, "the double of NCCL cannot make ", folder, "/", name);
  }
  const int kind = file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
  void* const data = ::mmap(nullptr, world_bytes, PROT_READ | PROT_WRITE, kind | MAP_NORESERVE, file, 0);
  if (file >= 0) ::close(file);
  require(data != MAP_FAILED, "the double of NCCL cannot map ", world_bytes, " bytes");
  return data;
}

}  // namespace

std::shared_ptr<NcclWorld> NcclWorld::open(const std::string& folder, const std::string& name, int size) {
  static_assert(sizeof(NcclWorld) <= header_bytes && std::atomic<std::int64_t>::is_always_lock_free);
  require(size <= most_ranks, "the double of NCCL takes ", most_ranks, " ranks, not ", size);
  static std::mutex mutex;
  static auto& known = *new std::map<std::string, std::weak_ptr<NcclWorld>>;
  const std::lock_guard lock(mutex);
  std::shared_ptr<NcclWorld> world = known[name].lock();
  if (world == nullptr) {
    // No constructor runs: it would write zeros, and a peer may have written since.
    world = std::shared_ptr<NcclWorld>(std::launder(reinterpret_cast<NcclWorld*>(map_world(folder, name))),
                                       [](NcclWorld* left) { ::munmap(left, world_bytes); });
    known[name] = world;
  }
  world->size_ = size;
  return world;
}

void NcclWorld::join(int rank, std::uint64_t host) {
  ranks_[rank].host = host;
  ++joined_;
  changed();
}
bool NcclWorld::on_one_host() const {
  for (int rank = 0; rank < size_; ++rank)
    if (ranks_[rank].host != ranks_[0].host) return false;
  return true;
}
void NcclWorld::abort() {
  aborted_ = true;
  changed();
}
void NcclWorld::connect(int rank) {
  ranks_[rank].connected = true;
  changed();
}
bool NcclWorld::connected() const {
  for (int rank = 0; rank < size_; ++rank)
    if (!ranks_[rank].connected) return false;
  return true;
}

// ---- Groups

std::byte* NcclWorld::message(int rank, std::int64_t turn) const {
  auto* const begin = reinterpret_cast<std::byte*>(const_cast<NcclWorld*>(this));
  return begin + header_bytes + (2 * rank + turn % 2) * message_bytes;
}

std::string NcclWorld::publish(int rank, std::int64_t turn, const NcclCalls& calls) {
  std::byte* to = message(rank, turn);
  const std::byte* const end = to + message_bytes;
  const auto put = [&](const void* from, std::int64_t bytes) {
    if (bytes > end - to) return false;
    if (bytes > 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
    to += bytes;
    return true;
  };
  const auto count = static_cast<std::int64_t>(calls.size());
  bool fits = put(&count, sizeof count) && put(calls.data(), count * static_cast<std::int64_t>(sizeof(Call)));
  for (const Call& call : calls) fits = fits && put(call.from, bytes_sent(call, rank, size_));
  if (!fits) return fsdp::message("a group sends more than the double's ", message_bytes, " bytes");
  ranks_[rank].published = turn + 1;
  changed();
  return "";
}

bool NcclWorld::published(std::int64_t turn) const {
  for (int rank = 0; rank < size_; ++rank)
    if (ranks_[rank].published <= turn) return false;
  return true;
}

NcclCallsByRank NcclWorld::group(std::int64_t turn) const {
  NcclCallsByRank all;
  for (int rank = 0; rank < size_; ++rank) {
    const std::byte* from = message(rank, turn);
    std::int64_t count = 0;
    std::memcpy(&count, from, sizeof count);
    NcclCalls& calls = all[rank];
    calls.resize(static_cast<std::size_t>(count));
    std::memcpy(calls.data(), from + sizeof count, calls.size() * sizeof(Call));
    from += sizeof count + calls.size() * sizeof(Call);
    for (Call& call : calls) {
      call.from = from;
      from += bytes_sent(call, rank, size_);
    }
  }
  return all;
}

// ---- Splits

void NcclWorld::vote(int rank, std::int64_t split, Vote vote) {
  ranks_[rank].votes[split % 2] = vote;  // as for groups, no rank is two splits ahead
  ranks_[rank].voted = split + 1;
  changed();
}

std::optional<NcclWorld::Part> NcclWorld::part_of(int rank, std::int64_t split) const {
  for (int peer = 0; peer < size_; ++peer)
    if (ranks_[peer].voted <= split) return std::nullopt;
  const auto [color, key] = ranks_[rank].votes[split % 2];
  Part part{.color = color, .size = 0, .rank = 0};
  for (int peer = 0; peer < size_; ++peer) {
    const Vote vote = ranks_[peer].votes[split % 2];
    if (vote.first != color) continue;
    ++part.size;
    if (std::pair(vote.second, peer) < std::pair(key, rank)) ++part.rank;
  }
  return part;
}

// ---- Waiting: by futexes, whose kernel queues survive a killed waiter

void NcclWorld::changed() {
  ++changes_;
  ::syscall(SYS_futex, &changes_, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void NcclWorld::wait(std::uint32_t seen) const {
  constexpr timespec while_none_wakes{.tv_sec = 0, .tv_nsec = 50'000'000};
  ::syscall(SYS_futex, &changes_, FUTEX_WAIT, seen, &while_none_wakes, nullptr, 0);
}

}  // namespace fsdp::testing::cuda_host
