// SPDX-License-Identifier: Apache-2.0
#include "mpi_process.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include <tessera/comm/launch/launch.hpp>
#include <tessera/comm/poll.hpp>
#include <tessera/fsdp/core/hash.hpp>
#include <tessera/fsdp/core/identity.hpp>

#include "../mpi_library.hpp"
#include "watchdog.hpp"

namespace fsdp::comm {
namespace {

constexpr std::chrono::seconds longest_start{60};

int living = 0;  // number of live MpiProcess objects, all of the thread that started MPI

}  // namespace

MpiProcess::MpiProcess(std::chrono::milliseconds deadline) : deadline_(deadline) {
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
  const Watchdog watch(name_ + ", MPI_Init,", std::max<std::chrono::milliseconds>(deadline, longest_start));
  int provided = 0;
  check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
  ++living;
}

MpiProcess::~MpiProcess() {
  if (--living > 0) return;
  const Watchdog watch(name_ + ", MPI_Finalize,", deadline_);
  MPI_Finalize();
}

int MpiProcess::rank() const {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

int MpiProcess::size() const {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

Messages MpiProcess::messages() const {
  const MPI_Comm world = MPI_COMM_WORLD;
  return {&world, deadline_};
}

bool MpiProcess::agree(std::span<const std::byte> bytes) {
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

void MpiProcess::abort(int status) {
  MPI_Abort(MPI_COMM_WORLD, status);
  std::_Exit(status);
}

}  // namespace fsdp::comm
