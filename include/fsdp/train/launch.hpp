// SPDX-License-Identifier: Apache-2.0
/// @file
/// Starts the ranks of a stack, or joins those that a launcher started.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <comm/collectives.hpp>
#include <comm/launch.hpp>
#include <fsdp/core/error.hpp>
#include <fsdp/device/cpu.hpp>
#include <fsdp/train/cores.hpp>
#include <fsdp/train/options.hpp>
#include <fsdp/train/ranges.hpp>

namespace fsdp::train {

/// Whether the program starts the communicator's ranks itself (`Comm::run` takes their number). Otherwise a launcher
/// such as mpirun does.
template <class Comm>
inline constexpr bool starts_ranks = requires(const comm::Options& options, int (*f)(Comm&)) {
  Comm::run(1, options, f);
};

/// Checks that `launch` can use a communicator; the compile error says what is missing.
template <class Comm>
consteval bool check_launch() {
  static_assert(
      starts_ranks<Comm> || requires(const comm::Options& options, int (*f)(Comm&)) { Comm::run(options, f); },
      "fsdp: a communicator lacks static int run(const comm::Options&, F f), which calls f(communicator) on each rank "
      "of this process and returns the exit status; or run(int ranks, options, f), where it starts the ranks itself");
  return true;
}

/// Calls f(communicator) on every rank of Comm and returns the exit status. Throws InputError if the options are
/// invalid, so many ranks cannot be started, or ranks of this process alone are asked for in a job of several
/// processes.
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
  const auto on_rank = [f = std::move(f)](Comm& communicator) {
    agree_on_cores(communicator);
    return f(communicator);
  };
  if constexpr (starts_ranks<Comm>) {
    comm::require_one_process("a program that starts its ranks itself",
                              "start one process, or take a communicator over processes, such as MPI");
    require<InputError>(launch.ranks >= 1 && launch.ranks <= most_started_ranks, "--ranks ", launch.ranks,
                        ": a program starts 1 to ", most_started_ranks, " ranks itself");
    return Comm::run(static_cast<int>(launch.ranks), options, on_rank);
  } else {
    return Comm::run(options, on_rank);
  }
}

/// Returns the number of ranks that `launch` will start or join; starts no communication.
template <class Comm>
int planned_ranks(const LaunchOptions& launch) {
  return starts_ranks<Comm> ? static_cast<int>(launch.ranks) : comm::launched_job().processes;
}

/// Returns how many of the ranks run on this machine and share its cores: the launcher's number, or else all of them.
int ranks_on_this_machine(int ranks);

}  // namespace fsdp::train
