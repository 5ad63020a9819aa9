// SPDX-License-Identifier: Apache-2.0
/// @file
/// The core of Mpi: one process of a communicator, with element types erased; for asynchronous devices it stages
/// tensors through host memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/comm/backend.hpp>
#include <tessera/comm/queued_core.hpp>

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

/// One process of a communicator. Simple rather than fast: `start` copies the inputs to the host, runs the collective
/// there, copies the results back, and blocks until the results are in place.
class StagedMpiRank {
 public:
  static constexpr std::string_view queue_name = "mpi";

  explicit StagedMpiRank(std::unique_ptr<MpiRank> host) : host_(std::move(host)) {}

  int rank() const { return host_->rank(); }
  int size() const { return host_->size(); }
  Monitor& monitor() { return host_->monitor(); }
  const Monitor& monitor() const { return std::as_const(*host_).monitor(); }
  std::int64_t scratch_bytes() const { return 0; }  ///< counts device memory only

  void move_with(AnyQueue queue) { queue_ = std::move(queue); }
  Transfer& prepare() { return transfer_; }
  Ticket start();
  bool test(Ticket) const { return true; }
  void abandon(Ticket) noexcept {}
  std::unique_ptr<StagedMpiRank> split(int color) { return std::make_unique<StagedMpiRank>(host_->split(color)); }

  void after(AnyEvent event) { after_.push_back(std::move(event)); }
  AnyEvent done(Ticket) const { return nullptr; }
  void wait_for(const AnyEvent& event);

 private:
  struct Range;  ///< a range of device memory and its place in the staging buffer
  std::vector<Range> ranges(const Transfer& transfer) const;
  void start_on_host(const Transfer& transfer);

  std::unique_ptr<MpiRank> host_;
  AnyQueue queue_;
  Transfer transfer_;
  std::vector<AnyEvent> after_;         ///< events that the next transfer of tensors starts after
  std::shared_ptr<std::byte> staging_;  ///< host memory through which tensors are staged
  std::int64_t staging_bytes_ = 0;
};

}  // namespace fsdp::comm
