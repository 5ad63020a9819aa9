// SPDX-License-Identifier: Apache-2.0
/// @file
/// Ranks are processes that mpirun started. This header does not need mpi.h; a build without MPI omits
/// src/comm/mpi*.cpp and src/comm/messages.cpp.
///
/// Ranks of one machine read what lies in each other's `shared_memory` where it is, as those of Threads do. All else
/// travels in point-to-point messages and is summed here, in rank order: MPI has no bf16, and Open MPI's own
/// nonblocking reductions move 3 to 4 times the bytes. The bits are the same either way. Messages progress only inside
/// calls: long computations should `test` what they wait for later.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include <comm/backend.hpp>
#include <comm/launch.hpp>
#include <fsdp/device/cpu.hpp>

namespace fsdp::comm {

class Messages;

/// The core of Mpi: one process of a communicator.
class MpiRank {
 public:
  MpiRank(Messages messages, const Options& options);
  MpiRank(const MpiRank&) = delete;
  MpiRank& operator=(const MpiRank&) = delete;
  ~MpiRank();

  int rank() const;
  int size() const;
  Monitor& monitor();
  const Monitor& monitor() const;
  /// Room for the pieces of a sum, two of each peer in each direction.
  std::int64_t scratch_bytes() const;
  static std::int64_t scratch_bytes_for(int ranks);

  Transfer& prepare();
  Ticket start();
  bool test(Ticket ticket);
  void wait(Ticket ticket);
  void abandon(Ticket ticket) noexcept;
  std::unique_ptr<MpiRank> split(int color);
  std::shared_ptr<std::byte> shared_memory(std::int64_t bytes);
  void library_all_gather(std::span<const float> local, std::span<float> full);
  void library_reduce_scatter(std::span<const float> full, std::span<float> local);

 private:
  class Engine;
  explicit MpiRank(std::unique_ptr<Engine> engine);
  std::unique_ptr<Engine> engine_;
};

/// Initialises MPI, runs f and finalises. An exception is printed as one line with the rank, and ends all processes
/// with status 2; an InputError that is the same on all ranks is printed by rank 0 alone, and 2 is returned.
int run_mpi(const Options& options, const std::function<int(std::unique_ptr<MpiRank>)>& f);

template <class DeviceType = device::Cpu>
class Mpi : public Backend<MpiRank, DeviceType> {
 public:
  static constexpr std::string_view name = "mpi";

  Mpi split(int color) { return Mpi(this->core().split(color)); }
  /// See comm::shared_memory.
  std::shared_ptr<std::byte> shared_memory(std::int64_t bytes) { return this->core().shared_memory(bytes); }
  /// MPI's own collectives over equal pieces, which `tessera bench comm` measures ours against.
  void library_all_gather(std::span<const float> local, std::span<float> full) {
    this->core().library_all_gather(local, full);
  }
  void library_reduce_scatter(std::span<const float> full, std::span<float> local) {
    this->core().library_reduce_scatter(full, local);
  }
  /// What scratch_bytes() is with so many ranks, for the dry run.
  static std::int64_t scratch_bytes_for(int ranks) { return MpiRank::scratch_bytes_for(ranks); }

  template <class F>
  static int run(const Options& options, F f) {
    return run_mpi(options, [&f](std::unique_ptr<MpiRank> core) {
      Mpi communicator(std::move(core));
      return run_rank(f, communicator);
    });
  }

 private:
  explicit Mpi(std::unique_ptr<MpiRank> core) : Backend<MpiRank, DeviceType>(std::move(core)) {}
};

template <class DeviceType>
inline constexpr bool supports_wire<Mpi<DeviceType>, bf16> = true;

}  // namespace fsdp::comm
