// SPDX-License-Identifier: Apache-2.0
/// @file
/// Starts the ranks of a stack, or joins the ranks that a launcher started.
#pragma once

#include <tessera/fsdp/core/language.hpp>  // before all others

#include <chrono>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <utility>

#include <tessera/comm/communicator.hpp>
#include <tessera/comm/launch/cores.hpp>
#include <tessera/comm/launch/launch.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/function_ref.hpp>
#include <tessera/fsdp/training/launch_options.hpp>
#include <tessera/fsdp/training/program.hpp>

namespace fsdp::train {

/// Whether the program starts the communicator's ranks itself (`Comm::run` takes their number). Otherwise a launcher
/// such as mpirun starts them.
template <class Comm>
inline constexpr bool starts_ranks = requires(const comm::Options& options, int (*f)(Comm&)) {
  { Comm::run(1, options, f) } -> std::convertible_to<int>;
};

/// Checks that `launch` can use a communicator; the compile error says what is missing.
template <class Comm>
consteval bool check_launch() {
  static_assert(
      starts_ranks<Comm> ||
          requires(const comm::Options& options, int (*f)(Comm&)) {
            { Comm::run(options, f) } -> std::convertible_to<int>;
          },
      "fsdp: a communicator lacks static int run(const comm::Options&, F f), which calls f(communicator) on each rank "
      "of this process and returns the exit status; or run(int ranks, options, f), where it starts the ranks itself");
  return true;
}

namespace detail {

inline comm::Options options_of(const LaunchOptions& launch) {
  comm::Options options;
  validate(launch);
  const auto milliseconds = [](double seconds) {
    return std::chrono::milliseconds(static_cast<std::int64_t>(std::ceil(seconds * 1000)));
  };
  options.deadline = milliseconds(launch.deadline_seconds);
  options.start_deadline = milliseconds(launch.start_deadline_seconds);
  options.device_deadline = milliseconds(launch.device_deadline_seconds);
  options.windows = launch.windows;
  options.fast_reductions = launch.reductions == Reductions::fast;
  return options;
}

template <class Comm>
int launch(const LaunchOptions& launch, FunctionRef<int(Comm&)> f) {
  const comm::Options options = options_of(launch);
  const auto on_rank = [f, threads = launch.threads](Comm& communicator) {
    comm::agree_on_cores(communicator);
    use_threads(comm::rank_threads(threads, communicator.size()));
    if (communicator.rank() == 0) warn_of_cores(communicator.size(), 0);
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

}  // namespace detail

/// Calls f(communicator) on every rank of Comm and returns the exit status of the process: the result of f, or 0 if f
/// returns void. Like run_program, it handles a program's exceptions: an error of a rank, invalid options, too many
/// ranks, or a process that has not joined its launcher's job prints one line on stderr and determines the status
/// (comm::ExitStatus). Inside another run_program it throws, and the outer call prints.
template <class Comm, class F>
[[nodiscard]] int launch(const LaunchOptions& options, F f) {
  static_assert(check_launch<Comm>());
  const auto on_rank = [&f = std::as_const(f)](Comm& communicator) { return comm::run_rank(f, communicator); };
  return run_program([&] { return detail::launch<Comm>(options, on_rank); });
}

/// Returns the number of ranks that `launch` will start or join; starts no communication.
template <class Comm>
int planned_ranks(const LaunchOptions& launch) {
  return starts_ranks<Comm> ? static_cast<int>(launch.ranks) : comm::launched_job().processes;
}

}  // namespace fsdp::train
