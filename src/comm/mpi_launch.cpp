// SPDX-License-Identifier: Apache-2.0
/// @file
/// Starts and ends one process of comm::Mpi, and reports its failure.
#include <csignal>
#include <cstdio>
#include <exception>
#include <string>

#include <tessera/comm/mpi.hpp>
#include <tessera/fsdp/core/terminal_text.hpp>

#include "messages.hpp"
#include "waiting_now.hpp"

namespace fsdp::comm {
namespace {

/// Prints one line in a single write, so that the lines of several processes do not mix. Restores the default SIGTERM
/// handler first: the launcher may now end this process without another message.
void print_failure(int rank, const std::string& what) {
  std::signal(SIGTERM, SIG_DFL);
  const std::string prefix = message("rank ", rank);
  print_sentence((what.starts_with(prefix) ? "" : prefix + ": ") + what);
  std::fflush(stderr);
}

}  // namespace

int run_mpi(const Options& options, const std::function<int(std::unique_ptr<MpiRank>)>& f) {
  const LaunchedJob job = launched_job();  // MPI writes variables of its own where it starts alone
  MpiProcess process(options.deadline);
  const int rank = process.rank();
  install_termination_report(rank);
  try {
    Messages messages;
    if (messages.size() == 1) require_joined(job);
    return f(std::make_unique<MpiRank>(std::move(messages), options));
  } catch (const CollectiveError& error) {
    print_failure(rank, error.what());
    MpiProcess::abort(exit_status_of(error));
  } catch (const std::exception& error) {
    // An error that is the same on every rank is printed once, and all processes end normally.
    const std::string what = error.what();
    if (process.agree(std::as_bytes(std::span(what)))) {
      if (rank == 0) print_sentence(what);
      return exit_status_of(error);
    }
    print_failure(rank, what);
    MpiProcess::abort(exit_status_of(error));
  } catch (...) {
    print_failure(rank, "an exception of unknown type");
    MpiProcess::abort(ExitStatus::failed);
  }
}

}  // namespace fsdp::comm
