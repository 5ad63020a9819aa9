// SPDX-License-Identifier: Apache-2.0
/// @file
/// The core of Mpi: one process of a communicator, with element types erased.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include <tessera/comm/backend.hpp>

namespace fsdp::comm {

class Messages;
struct MpiWatch;

/// One process of a communicator. Moves host memory.
class MpiRank {
 public:
  /// `watch`: the state that the launcher observes, or null.
  MpiRank(Messages messages, const Options& options, MpiWatch* watch);
  /// Makes a rank in a host program that has initialised MPI itself; see Mpi::adopt. `communicator`: the address of an
  /// MPI_Comm of `bytes` bytes.
  static std::unique_ptr<MpiRank> adopt(const void* communicator, std::size_t bytes, const Options& options);
  MpiRank(const MpiRank&) = delete;
  MpiRank& operator=(const MpiRank&) = delete;
  ~MpiRank();

  int rank() const;
  int size() const;
  Monitor& monitor();
  const Monitor& monitor() const;
  /// Returns the bytes of the buffers that sums use: two pieces per peer and direction.
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

}  // namespace fsdp::comm
