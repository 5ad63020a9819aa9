// SPDX-License-Identifier: Apache-2.0
/// @file
/// How groups of thread ranks are made, by launch and by splits, and the state that their ranks share.
#include "threads_group.hpp"

#include <exception>
#include <thread>

#include <tessera/comm/threads.hpp>
#include <tessera/comm/threads_rank.hpp>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace fsdp::comm {
namespace {

/// Longer than the latency of a peer's notification, shorter than a scheduler time slice.
constexpr std::chrono::microseconds longest_spin{50};

void relax() {
#if defined(__x86_64__)
  _mm_pause();
#else
  std::this_thread::yield();
#endif
}

}  // namespace

void ThreadsWorld::notify() {
  version_.fetch_add(1);
  if (sleepers_.load() == 0) return;
  // A sleeper increments sleepers_ before it checks the version. Locking its mutex once ensures that it now sleeps.
  { const std::lock_guard lock(mutex_); }
  changed_.notify_all();
}

void ThreadsWorld::await_change(std::uint64_t seen, bool spin, Clock::time_point deadline) {
  // Yields between checks: the awaited peer may be waiting for this core.
  const Clock::time_point end = Clock::now() + (spin ? longest_spin : std::chrono::microseconds(0));
  do {
    for (int i = 0; i < (spin ? 32 : 1); ++i) {
      if (version() != seen) return;
      relax();
    }
    std::this_thread::yield();
  } while (Clock::now() < end);
  if (version() != seen) return;
  sleepers_.fetch_add(1);
  {
    std::unique_lock lock(mutex_);
    changed_.wait_until(lock, deadline, [&] { return version() != seen; });
  }
  sleepers_.fetch_sub(1);
}

void ThreadsWorld::poison(int rank, std::string_view reason) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (poisoned()) return;
    try {
      failure_ = reason;
    } catch (const std::exception&) {  // out of memory: failed_ is still set
    }
    failed_.store(rank);
  }
  notify();
}

std::string ThreadsWorld::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

std::shared_ptr<ThreadsGroup> group_of_threads(int ranks) {
  constexpr int most = 65'536;  // each rank is a thread, and Linux allows fewer by default
  require<InputError>(ranks > 0 && ranks <= most, "threads communicator: ", ranks, " ranks were asked for; give 1 to ",
                      most);
  return std::make_shared<ThreadsGroup>(std::make_shared<ThreadsWorld>(), ranks);
}

int run_threads(int ranks, const Options& options, const std::function<int(std::unique_ptr<ThreadsRank>)>& f) {
  const auto group = group_of_threads(ranks);
  const auto& world = group->world;
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(ranks));
  std::vector<int> statuses(static_cast<std::size_t>(ranks));
  {
    std::vector<std::jthread> threads;
    const auto body = [&](std::size_t index) {
      try {
        const int rank = static_cast<int>(index);
        statuses[index] =
            f(std::make_unique<ThreadsRank>(group, rank, rank, options, ThreadsRank::End::is_reported_by_launcher));
      } catch (const std::exception& error) {
        errors[index] = std::current_exception();
        world->poison(static_cast<int>(index), error.what());
      } catch (...) {
        errors[index] = std::current_exception();
        world->poison(static_cast<int>(index), "an exception of unknown type");
      }
    };
    try {
      for (std::size_t index = 0; index < statuses.size(); ++index) threads.emplace_back(body, index);
    } catch (const std::exception& error) {
      world->poison(static_cast<int>(threads.size()), error.what());
      errors[threads.size()] = std::current_exception();
    }
  }
  // The first failure is the cause; the other ranks' errors only report it.
  if (world->poisoned() && errors[static_cast<std::size_t>(world->failed_rank())])
    std::rethrow_exception(errors[static_cast<std::size_t>(world->failed_rank())]);
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
  for (int status : statuses)
    if (status != 0) return status;
  return 0;
}

std::unique_ptr<ThreadsRank> ThreadsRank::split(int color) {
  struct Vote {
    int color;
    int world_rank;
    std::shared_ptr<ThreadsGroup>* group;
  };
  // The lowest rank of each color makes the group; all copy its pointer before it goes out of scope.
  std::shared_ptr<ThreadsGroup> made;
  const Vote mine{.color = color, .world_rank = world_rank_, .group = &made};
  std::vector<Vote> votes(static_cast<std::size_t>(size()));
  const std::vector<std::int64_t> counts(votes.size(), sizeof(Vote));
  const auto gather = [&] {
    Transfer& transfer = prepare();
    describe(transfer, Op::all_gather, std::span<const Segment<std::uint8_t>>{}, DType::u8);
    transfer.values = true;
    transfer.segments.push_back({.local = reinterpret_cast<std::byte*>(const_cast<Vote*>(&mine)),
                                 .full = reinterpret_cast<std::byte*>(votes.data()),
                                 .counts = counts});
    wait(start());
  };
  gather();
  int ranks = 0;
  int rank = 0;
  int leader = -1;
  std::vector<int> world_ranks;
  for (int peer = 0; peer < size(); ++peer) {
    if (votes[static_cast<std::size_t>(peer)].color != color) continue;
    if (leader < 0) leader = peer;
    world_ranks.push_back(votes[static_cast<std::size_t>(peer)].world_rank);
    if (peer < rank_) ++rank;
    ++ranks;
  }
  if (leader == rank_) made = std::make_shared<ThreadsGroup>(group_->world, ranks);
  gather();
  std::shared_ptr<ThreadsGroup> group = *votes[static_cast<std::size_t>(leader)].group;
  gather();
  auto part = std::make_unique<ThreadsRank>(std::move(group), rank, world_rank_, monitor_.options, end_);
  part->monitor().world_ranks = std::move(world_ranks);
  return part;
}

}  // namespace fsdp::comm
