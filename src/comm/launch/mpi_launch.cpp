// SPDX-License-Identifier: Apache-2.0
/// @file
/// Starts and ends one process of comm::Mpi, and reports its failure.
#include <array>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include <tessera/comm/launch/launch.hpp>
#include <tessera/comm/launch/print.hpp>
#include <tessera/comm/mpi.hpp>
#include <tessera/comm/poll.hpp>
#include <tessera/fsdp/core/hash.hpp>
#include <tessera/fsdp/core/identity.hpp>

#include "../mpi_engine.hpp"
#include "../mpi_library.hpp"
#include "process_end.hpp"

namespace fsdp::comm {
namespace {

int living = 0;  // number of live MpiProcess objects, all of the thread that started MPI

/// Initialises MPI in its constructor and finalises it in its destructor; does neither if another instance is alive.
class MpiProcess {
 public:
  /// `deadline` limits MPI_Finalize and the start of the first communicator; `start_deadline` limits MPI_Init. Throws
  /// InputError if the process has initialised MPI before and no other MpiProcess lives.
  explicit MpiProcess(const Options& options) : deadline_(options.deadline) {
    if (const LaunchedJob job = launched_job(); !job.launcher.empty()) name_ = message("rank ", job.rank);
    name_ += message(" (host ", machine_name(), ")");
    if (living > 0) {
      ++living;
      return;
    }
    int initialized = 0;
    MPI_Initialized(&initialized);
    require<InputError>(initialized == 0,
                        "mpi: this process has initialised MPI before, and run would do it once more; call "
                        "comm::Mpi<>::adopt with its communicator instead");
    const Watchdog watch(name_ + ", MPI_Init,", options.start_deadline, " of the start");
    int provided = 0;
    check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
    ++living;
  }
  MpiProcess(const MpiProcess&) = delete;
  MpiProcess& operator=(const MpiProcess&) = delete;
  ~MpiProcess() {
    if (--living > 0) return;
    const Watchdog watch(name_ + ", MPI_Finalize,", deadline_);
    MPI_Finalize();
  }

  int rank() const {
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    return rank;
  }
  int size() const {
    int size = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    return size;
  }
  /// Makes the Messages of all processes of the job.
  Messages messages() const {
    const MPI_Comm world = MPI_COMM_WORLD;
    return {&world, deadline_};
  }
  /// Returns whether all processes call this with the same bytes within two seconds. If not, only `abort` may follow.
  bool agree(std::span<const std::byte> bytes) {
    constexpr std::chrono::seconds longest_wait{2};
    struct Numbers {
      std::array<std::uint64_t, 2> mine, least;
    };
    const std::uint64_t hash = hashed(hash_seed, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    auto numbers = std::make_unique<Numbers>(Numbers{.mine = {hash, ~hash}, .least = {}});
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Iallreduce(numbers->mine.data(), numbers->least.data(), 2, MPI_UINT64_T, MPI_MIN, MPI_COMM_WORLD, &request);
    const bool came = poll_until(std::chrono::steady_clock::now() + longest_wait, [&request] {
      int done = 0;
      MPI_Test(&request, &done, MPI_STATUS_IGNORE);
      return done != 0;
    });
    if (!came) static_cast<void>(numbers.release());  // leaked, since MPI may still write to them
    return came && numbers->least[0] == hash && numbers->least[1] == ~hash;
  }
  [[noreturn]] static void abort(int status) {
    MPI_Abort(MPI_COMM_WORLD, status);
    std::_Exit(status);
  }

 private:
  std::chrono::milliseconds deadline_;
  std::string name_ = "a rank";  ///< this process, as the watchdog reports it
};

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
void wait_for_report_of_failed_rank(MpiProcess& process, MpiWatch& watch) {
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
  auto process = std::make_shared<MpiProcess>(options);
  if (process->size() == 1) require_joined(job);
  return process;
}

int run_mpi(const Options& options, FunctionRef<int(std::unique_ptr<MpiRank>)> f) {
  const LaunchedJob job = launched_job();  // read before MPI starts, which may set such variables itself
  MpiWatch watch;
  std::optional<TerminationReport> report;  // reports until MPI is finalised
  MpiProcess process(options);
  const int rank = process.rank();
  report.emplace(rank, watch.waiting_in);
  try {
    Messages messages = process.messages();
    if (messages.size() == 1) require_joined(job);
    return f(std::make_unique<MpiRank>(std::move(messages), options, &watch));
  } catch (const CollectiveError& error) {
    if (watch.told_in) wait_for_report_of_failed_rank(process, watch);
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
