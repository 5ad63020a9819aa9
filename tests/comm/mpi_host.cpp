// SPDX-License-Identifier: Apache-2.0
// A host program with its own MPI, signal handlers, threads and sub-communicator, which the library adopts. mpirun runs
// it with 3 processes. With the argument `single` it calls MPI_Init, which supports a single thread only; with
// `serialized` a thread other than MPI's main thread adopts. The library must print nothing: stdout and stderr go to a
// file that must be empty at the end. Failed checks are printed after that.
#include <fcntl.h>
#include <mpi.h>
#include <omp.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <tessera/comm/mpi.hpp>
#include <tessera/comm/threads.hpp>

#include "host_sums.hpp"

namespace {

using namespace fsdp;
using std::chrono::milliseconds;
using Mpi = comm::Mpi<>;

std::vector<std::string> failures;

void expect(bool holds, const std::string& what) {
  if (!holds) failures.push_back(what);
}
void expect_part(const std::string& text, const std::string& part, const std::string& what) {
  expect(text.find(part) != std::string::npos, what + ": no '" + part + "' in '" + text + "'");
}

int rank_of(MPI_Comm communicator) {
  int rank = 0;
  MPI_Comm_rank(communicator, &rank);
  return rank;
}

/// Returns the message of the exception that `call` throws; empty if it throws none.
template <class Error = std::exception, class Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

/// Redirects stdout and stderr of this process to a file in memory during its lifetime.
class Silence {
 public:
  Silence() : file_(memfd_create("output", MFD_CLOEXEC)), out_(dup(1)), error_(dup(2)) {
    dup2(file_, 1);
    dup2(file_, 2);
  }
  Silence(const Silence&) = delete;
  Silence& operator=(const Silence&) = delete;
  ~Silence() {
    std::fflush(stdout);
    std::array<char, 400> text{};
    if (pread(file_, text.data(), text.size() - 1, 0) > 0) failures.push_back(std::string("printed: ") + text.data());
    dup2(out_, 1);
    dup2(error_, 2);
  }

 private:
  int file_, out_, error_;
};

/// Settings that the library must not change: signal handlers, number of threads, OpenMP's settings.
struct Settings {
  std::vector<void (*)(int)> handlers;
  std::ptrdiff_t threads = 0;
  int openmp = 0;

  friend bool operator==(const Settings&, const Settings&) = default;
};
Settings settings_now() {
  Settings now{.handlers = {}, .openmp = omp_get_max_threads()};
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGPIPE, SIGABRT, SIGSEGV}) {
    struct sigaction action {};
    sigaction(signal, nullptr, &action);
    now.handlers.push_back(action.sa_handler);
  }
  now.threads =
      std::distance(std::filesystem::directory_iterator("/proc/self/task"), std::filesystem::directory_iterator());
  return now;
}

volatile std::sig_atomic_t terminations = 0;

/// Two of three processes are bit-identical to two threads, in place and by messages, also after a split of all three.
void sub_communicator() {
  const int rank = rank_of(MPI_COMM_WORLD);
  MPI_Comm pair = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, rank == 1 ? MPI_UNDEFINED : 0, rank, &pair);
  for (const bool windows : {true, false}) {
    const std::string way = windows ? "windows" : "messages";
    Mpi all = Mpi::adopt(MPI_COMM_WORLD, {.windows = windows});
    Mpi part = comm::split(all, [](int r) { return r == 1 ? 1 : 0; });
    const test::HostSums of_part = test::host_sums(part, true);
    if (pair == MPI_COMM_NULL) continue;
    Mpi c = Mpi::adopt(pair, {.windows = windows});
    expect(c.size() == 2 && c.rank() == rank / 2, "ranks of the pair");
    expect(c.monitor().options.deadline == std::chrono::minutes(10) && c.monitor().options.threads == 1, "defaults");
    const test::HostSums of_pair = test::host_sums(c, true);
    test::HostSums of_threads;
    comm::ThreadRanks ranks(2);
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 2; ++thread)
      threads.emplace_back([&, thread] {
        auto own = ranks.join(thread);
        const test::HostSums mine = test::host_sums(own);
        if (thread == rank / 2) of_threads = mine;
      });
    for (std::thread& thread : threads) thread.join();
    expect(of_pair == of_threads, way + ": two processes and two threads differ");
    expect(of_part == of_pair, way + ": a part and a communicator of its own differ");
  }
  if (pair != MPI_COMM_NULL) MPI_Comm_free(&pair);
}

/// One rank throws while a gather is in flight: the others get an error at once, and all continue with a new
/// communicator.
void failure(bool windows) {
  const std::string way = windows ? "windows: " : "messages: ";
  const int rank = rank_of(MPI_COMM_WORLD);
  const auto begin = std::chrono::steady_clock::now();
  const auto fail = [&] {
    Mpi c = Mpi::adopt(MPI_COMM_WORLD, {.deadline = std::chrono::seconds(20), .windows = windows});
    comm::barrier(c);
    constexpr std::int64_t piece = 1 << 18;
    const std::shared_ptr<std::byte> memory = comm::shared_memory(c, 3 * piece * std::int64_t{sizeof(float)});
    std::vector<float> heap(memory ? 0 : 3 * piece);
    float* const full = memory ? reinterpret_cast<float*>(memory.get()) : heap.data();
    const std::vector<std::int64_t> counts(3, piece);
    const std::vector<comm::Segment<float>> segments{{.local = full + rank * piece, .full = full, .counts = counts}};
    auto gather = comm::all_gather(c, segments, {.what = "weights"});
    if (rank == 1) throw std::runtime_error("bad record 17");
    gather.wait();
    comm::barrier(c);
  };
  const std::string text = error_of(fail);
  const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  expect(took < 10, way + "told after " + std::to_string(took) + " s");
  if (rank == 1)
    expect(text == "bad record 17", way + "rank 1 saw '" + text + "'");
  else
    expect_part(text, "rank 1 failed: an exception ended it", way + "who failed");
  for (int i = 1; i < 2000; ++i) std::vector<char>(static_cast<std::size_t>(i) * 97, 'x');  // the heap is not corrupted
  MPI_Barrier(MPI_COMM_WORLD);
  Mpi c = Mpi::adopt(MPI_COMM_WORLD, {.windows = windows});
  expect(comm::sum_over_ranks(c, 1.0) == 3, way + "a new communicator after a failure");
}

/// Memory that is unmapped when it is freed: a later access crashes the process.
class Pages {
 public:
  explicit Pages(std::int64_t floats) : bytes_(static_cast<std::size_t>(floats) * sizeof(float)) {
    data_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  ~Pages() { munmap(data_, bytes_); }
  float* data() const { return static_cast<float*>(data_); }

 private:
  std::size_t bytes_;
  void* data_;
};

/// A rank throws while the others are computing and have begun to receive from it, or to send to it. MPI must not touch
/// its memory afterwards, whatever the others still request.
void failure_while_others_compute(int owner) {
  constexpr std::int64_t piece = 1 << 18;
  const int rank = rank_of(MPI_COMM_WORLD);
  std::vector<std::int64_t> counts(3, 0);
  counts[static_cast<std::size_t>(owner)] = piece;
  const std::string text = error_of([&] {
    Mpi c = Mpi::adopt(MPI_COMM_WORLD, {.windows = false});
    const Pages full(piece);
    const std::vector<comm::Segment<float>> segments{{.local = full.data(), .full = full.data(), .counts = counts}};
    comm::barrier(c);
    if (rank == 1) std::this_thread::sleep_for(milliseconds(100));
    auto gather = comm::all_gather(c, segments);
    if (rank == 1) throw std::runtime_error("bad record 17");
    std::this_thread::sleep_for(milliseconds(500));
    gather.wait();
    comm::barrier(c);
  });
  expect_part(text, rank == 1 ? "bad record 17" : "rank 1 failed", "failed while others compute");
  MPI_Barrier(MPI_COMM_WORLD);
}

/// A rank that does not arrive is reported at the deadline; once it arrives, it gets the same error.
void missed_deadline() {
  const int rank = rank_of(MPI_COMM_WORLD);
  Mpi c = Mpi::adopt(MPI_COMM_WORLD, {.deadline = milliseconds(300)});
  if (rank == 1) std::this_thread::sleep_for(milliseconds(1200));
  const std::string text = error_of<comm::CollectiveError>([&] { comm::barrier(c); });
  expect_part(text, "for rank 1 (has not come", "missed deadline");
  if (rank == 1) expect_part(text, " failed: waited 0.3", "told of a missed deadline");
  expect_part(error_of<comm::CollectiveError>([&] { comm::barrier(c); }), "make a new communicator", "after it");
  Mpi again = Mpi::adopt(MPI_COMM_WORLD);
  expect(comm::sum_over_ranks(again, 1.0) == 3, "a new communicator after a missed deadline");
}

/// A rank that adopts a communicator alone times out.
void adopted_alone() {
  MPI_Comm lonely = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &lonely);
  if (rank_of(MPI_COMM_WORLD) != 0) return;
  const auto begin = std::chrono::steady_clock::now();
  const auto adopt = [&] { Mpi::adopt(lonely, {.deadline = milliseconds(100)}); };
  expect_part(error_of<comm::CollectiveError>(adopt), "waited 0.1", "adopted alone");
  expect(std::chrono::steady_clock::now() - begin < std::chrono::seconds(5), "adopt waited too long");
}

void refusals() {
  expect_part(error_of<InputError>([] { Mpi::adopt(MPI_COMM_NULL); }), "MPI_COMM_NULL", "no communicator");
  expect_part(error_of<InputError>([] { Mpi::run({}, [](Mpi&) {}); }), "adopt", "run in a program with MPI of its own");
  std::string text;
  std::thread([&] { text = error_of<InputError>([] { Mpi::adopt(MPI_COMM_WORLD); }); }).join();
  expect_part(text, "MPI_THREAD_SERIALIZED", "another thread than MPI's");
}

void guest() {
  Silence silence;
  expect_part(error_of<InputError>([] { Mpi::adopt(MPI_COMM_WORLD); }), "not initialised", "before MPI_Init");
  int level = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &level);
  std::signal(SIGTERM, [](int) { terminations = terminations + 1; });
  omp_set_num_threads(3);
  const Settings before = settings_now();
  sub_communicator();
  failure(true);
  failure(false);
  for (const int owner : {0, 1}) failure_while_others_compute(owner);
  missed_deadline();
  if (level == MPI_THREAD_FUNNELED) refusals();
  adopted_alone();
  expect(settings_now() == before, "handlers, threads or OpenMP's settings have changed");
  std::raise(SIGTERM);
  expect(terminations == 1, "the host's SIGTERM handler is gone");
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Finalize();
  expect_part(error_of<InputError>([] { Mpi::adopt(MPI_COMM_WORLD); }), "finalized already", "after MPI_Finalize");
}

void single() {
  MPI_Init(nullptr, nullptr);
  int level = 0;
  MPI_Query_thread(&level);
  const std::string text = error_of<InputError>([] { Mpi::adopt(MPI_COMM_WORLD); });
  if (level == MPI_THREAD_SINGLE) expect_part(text, "MPI_Init_thread with MPI_THREAD_FUNNELED", "a single thread");
  MPI_Finalize();
}

void serialized() {
  const Silence silence;
  int level = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level);
  if (level >= MPI_THREAD_SERIALIZED)
    std::thread([] {
      expect(error_of([] {
               Mpi c = Mpi::adopt(MPI_COMM_WORLD);
               expect(comm::sum_over_ranks(c, 1.0) == c.size(), "a sum on another thread than MPI's");
             }).empty(),
             "adopted on another thread than MPI's");
    }).join();
  MPI_Finalize();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string how = argc > 1 ? argv[1] : "funneled";
  if (how == "single")
    single();
  else if (how == "serialized")
    serialized();
  else
    guest();
  for (const std::string& text : failures) std::fprintf(stderr, "%s\n", text.c_str());
  return failures.empty() ? 0 : 1;
}
