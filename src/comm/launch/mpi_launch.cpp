// SPDX-License-Identifier: Apache-2.0
/// @file
/// Starts and ends one process of comm::Mpi, and reports its failure.
#include <chrono>
#include <csignal>
#include <cstdio>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include <tessera/comm/launch/launch.hpp>
#include <tessera/comm/launch/print.hpp>
#include <tessera/comm/mpi.hpp>

#include "../mpi_engine.hpp"
#include "mpi_process.hpp"
#include "termination_report.hpp"

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

/// Gives the rank that failed first the time to print its error and end all processes. It needs this time because it
/// first checks whether all ranks have the same error, and only it knows the cause. Meanwhile, if SIGTERM comes, this
/// rank reports where it waited.
void let_the_failed_rank_report(MpiProcess& process, MpiWatch& watch) {
  Monitor place;
  place.current = *watch.told_in;
  watch.waiting_in.store(&place);
  process.agree({});
  std::this_thread::sleep_for(std::chrono::seconds(2));
  watch.waiting_in.store(nullptr);
}

}  // namespace

std::shared_ptr<void> keep_mpi(const Options& options) {
  const LaunchedJob job = launched_job();
  auto process = std::make_shared<MpiProcess>(options.deadline);
  if (process->size() == 1) require_joined(job);
  return process;
}

int run_mpi(const Options& options, const std::function<int(std::unique_ptr<MpiRank>)>& f) {
  const LaunchedJob job = launched_job();  // read before MPI starts, which may set such variables itself
  MpiWatch watch;
  std::optional<TerminationReport> report;  // reports until MPI is finalised
  MpiProcess process(options.deadline);
  const int rank = process.rank();
  report.emplace(rank, watch.waiting_in);
  try {
    Messages messages = process.messages();
    if (messages.size() == 1) require_joined(job);
    return f(std::make_unique<MpiRank>(std::move(messages), options, &watch));
  } catch (const CollectiveError& error) {
    if (watch.told_in) let_the_failed_rank_report(process, watch);
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
