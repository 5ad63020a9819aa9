// SPDX-License-Identifier: Apache-2.0
/// @file
/// How groups of thread ranks are made, by launch, by splits and on threads of a host program, and the state that their
/// ranks share.
#include "threads_group.hpp"

#include <algorithm>
#include <exception>
#include <thread>

#include <tessera/comm/threads.hpp>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace fsdp::comm {
namespace {

/// Longer than the latency of a peer's notification, shorter than a scheduler time slice.
constexpr std::chrono::microseconds longest_spin{50};

void pause_briefly() {
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
      pause_briefly();
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

int run_threads(int ranks, const Options& options, FunctionRef<int(std::unique_ptr<ThreadsRank>)> f) {
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
            f(std::make_unique<ThreadsRank>(group, rank, options, ThreadsRank::End::is_reported_by_launcher));
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
    std::shared_ptr<ThreadsGroup>* group;
  };
  // The lowest rank of each color makes the group; all copy its pointer before it goes out of scope.
  std::shared_ptr<ThreadsGroup> made;
  const Vote mine{.color = color, .group = &made};
  std::vector<Vote> votes(static_cast<std::size_t>(size()));
  const auto gather = [&] {
    gather_values(*this, std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(votes)));
  };
  gather();
  std::vector<int> ranks;
  for (int peer = 0; peer < size(); ++peer)
    if (votes[static_cast<std::size_t>(peer)].color == color) ranks.push_back(peer);
  if (ranks.front() == rank_) made = std::make_shared<ThreadsGroup>(group_->world, static_cast<int>(ranks.size()));
  gather();
  std::shared_ptr<ThreadsGroup> group = *votes[static_cast<std::size_t>(ranks.front())].group;
  gather();
  const auto rank = static_cast<int>(std::ranges::find(ranks, rank_) - ranks.begin());
  auto part = std::make_unique<ThreadsRank>(std::move(group), rank, monitor_.options, end_);
  part->monitor_.follow(monitor_, ranks);
  return part;
}

ThreadRanks::ThreadRanks(int ranks, const Options& options) : options_(options) {
  options_.threads = threads_in_host_program(options);
  group_ = group_of_threads(ranks);
}

int ThreadRanks::size() const { return group_->size(); }

std::unique_ptr<ThreadsRank> ThreadRanks::joined(int rank) {
  require_rank(rank);
  require<InputError>(!group_->peer(rank).joined.exchange(true), "threads communicator: rank ", rank,
                      " joins a second time; keep the communicator that it got");
  return std::make_unique<ThreadsRank>(group_, rank, options_, ThreadsRank::End::is_reported_here);
}

void ThreadRanks::fail(int rank, std::string_view why) {
  require_rank(rank);
  group_->world->poison(rank, why);
}

void ThreadRanks::require_rank(int rank) const {
  require<InputError>(rank >= 0 && rank < size(), "threads communicator: rank ", rank, "; ranks are 0 to ", size() - 1);
}

}  // namespace fsdp::comm
