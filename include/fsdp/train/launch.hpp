// SPDX-License-Identifier: Apache-2.0
/// @file
/// Starting the ranks of a stack.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <comm/collectives.hpp>
#include <fsdp/core/error.hpp>
#include <fsdp/device/cpu.hpp>
#include <fsdp/train/options.hpp>
#include <fsdp/train/ranges.hpp>

namespace fsdp::train {

/// Whether a program starts the communicator's ranks itself, as many as it is told; else a launcher has.
template <class Comm>
inline constexpr bool starts_ranks = requires(const comm::Options& options, int (*f)(Comm&)) {
  Comm::run(1, options, f);
};

/// Says in words what a communicator lacks for a program of its own.
template <class Comm>
consteval bool check_launch() {
  static_assert(
      starts_ranks<Comm> || requires(const comm::Options& options, int (*f)(Comm&)) { Comm::run(options, f); },
      "fsdp: a communicator lacks static int run(const comm::Options&, F f), which calls f(communicator) on each rank "
      "of this process and returns the exit status; or run(int ranks, options, f), where it starts the ranks itself");
  return true;
}

/// Calls f(communicator) on every rank of Comm; returns its status. Throws InputError for a number of ranks that cannot
/// be started.
template <class Comm, class F>
int launch(const LaunchOptions& launch, F f) {
  comm::Options options;
  validate(launch);
  const auto milliseconds = [](double seconds) {
    return std::chrono::milliseconds(static_cast<std::int64_t>(std::ceil(seconds * 1000)));
  };
  options.deadline = milliseconds(launch.deadline_seconds);
  options.device_deadline = milliseconds(launch.device_deadline_seconds);
  options.windows = launch.windows;
  if constexpr (starts_ranks<Comm>) {
    require<InputError>(launch.ranks >= 1 && launch.ranks <= most_started_ranks, "--ranks ", launch.ranks,
                        ": a program starts 1 to ", most_started_ranks, " ranks itself");
    return Comm::run(static_cast<int>(launch.ranks), options, std::move(f));
  } else {
    return Comm::run(options, std::move(f));
  }
}

/// Ranks that `launch` would start or join, told without starting any.
int launched_ranks();
/// This process's rank among them: for what only one of them should print before ranks are there.
int launched_rank();
/// Ranks that there will be.
template <class Comm>
int planned_ranks(const LaunchOptions& launch) {
  return starts_ranks<Comm> ? static_cast<int>(launch.ranks) : launched_ranks();
}

/// Ranks whose processes share this machine's cores: all of them, where the launcher says nothing else.
int ranks_on_this_machine(int ranks);

/// Threads of each rank.
template <class Comm>
int rank_threads(const LaunchOptions& launch, const Comm& communicator) {
  return static_cast<int>(
      threads_per_rank(launch.threads, device::available_cores(), ranks_on_this_machine(communicator.size())));
}

}  // namespace fsdp::train
