// SPDX-License-Identifier: Apache-2.0
/// @file
/// Starting the ranks of a stack, and agreeing on what they were asked to do.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <comm/collectives.hpp>
#include <fsdp/core/error.hpp>
#include <fsdp/device/cpu.hpp>
#include <fsdp/train/options.hpp>

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

inline constexpr std::int64_t most_started_ranks = 1024;

/// Calls f(communicator) on every rank of Comm; returns its status. Throws InputError for a number of ranks that cannot
/// be started.
template <class Comm, class F>
int launch(const LaunchOptions& launch, F f) {
  comm::Options options;
  options.deadline = std::chrono::milliseconds(static_cast<std::int64_t>(launch.deadline_seconds * 1000));
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

/// Throws the same InputError on every rank unless `arguments` are the same on all: two ranks' words side by side.
template <class Comm>
void agree_on_arguments(Comm& communicator, const std::string& arguments) {
  std::int64_t longest = static_cast<std::int64_t>(arguments.size());
  comm::reduce(communicator, std::span<std::int64_t>(&longest, 1), comm::Reduction::max, {"arguments"});
  const auto width = static_cast<std::size_t>(longest);
  std::vector<std::byte> mine(width), all(width * static_cast<std::size_t>(communicator.size()));
  std::transform(arguments.begin(), arguments.end(), mine.begin(), [](char c) { return static_cast<std::byte>(c); });
  comm::gather_bytes(communicator, std::span<const std::byte>(mine), std::span<std::byte>(all), {"arguments"});
  for (int rank = 1; rank < communicator.size(); ++rank) {
    const auto* const theirs = all.data() + static_cast<std::size_t>(rank) * width;
    const auto differs = std::mismatch(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(width), theirs).first;
    if (differs == all.begin() + static_cast<std::ptrdiff_t>(width)) continue;
    const auto line_at = [&](const std::byte* text) {
      const std::string whole(reinterpret_cast<const char*>(text), width);
      const auto at = static_cast<std::size_t>(differs - all.begin());
      const auto begin = whole.rfind('\n', at == 0 ? 0 : at - 1);
      const auto start = begin == std::string::npos ? 0 : begin + 1;
      return whole.substr(start, whole.find('\n', at) - start);
    };
    throw InputError(message("ranks were started with different arguments: rank 0 has '", line_at(all.data()),
                             "', rank ", rank, " has '", line_at(theirs), "'; start all ranks with the same"));
  }
}

}  // namespace fsdp::train
