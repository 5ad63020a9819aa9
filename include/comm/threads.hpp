// SPDX-License-Identifier: Apache-2.0
/// @file
/// Ranks are threads of one process: each reads its peers' memory directly. The default on one machine.
///
/// A collective publishes addresses; every rank then copies or sums its own part from where the peers have it. Nothing
/// is packed, nothing is sent. Waiting ranks spin for some microseconds, then sleep, so that ranks may outnumber cores.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <comm/backend.hpp>
#include <comm/launch.hpp>
#include <fsdp/device/cpu.hpp>

namespace fsdp::comm {

class ThreadsGroup;  ///< what the ranks of one communicator share; in src/comm/threads_group.hpp

/// The core of Threads: one rank of a group.
class ThreadsRank {
 public:
  ThreadsRank(std::shared_ptr<ThreadsGroup> group, int rank, int world_rank, const Options& options);
  ThreadsRank(const ThreadsRank&) = delete;
  ThreadsRank& operator=(const ThreadsRank&) = delete;
  ~ThreadsRank();

  int rank() const { return rank_; }
  int size() const;
  Monitor& monitor() { return monitor_; }
  const Monitor& monitor() const { return monitor_; }
  std::int64_t scratch_bytes() const { return 0; }

  Transfer& prepare();
  Ticket start();
  bool test(Ticket ticket);
  void wait(Ticket ticket);
  void abandon(Ticket ticket) noexcept;
  std::unique_ptr<ThreadsRank> split(int color);

 private:
  bool progress();
  bool advance(const Transfer& transfer);
  bool gather_from_ready(const Transfer& transfer, bool (ThreadsRank::*ready)(int) const);
  bool published(int peer) const;  ///< whether it has started the active transfer
  bool reduced(int peer) const;    ///< whether it has summed its own pieces of the active transfer
  bool all_published() const;
  void sum_own_pieces(const Transfer& transfer);
  void copy_from(const Transfer& transfer, int peer);
  const Transfer& active_transfer_of(int peer) const;
  void set_finished(std::uint64_t step);
  bool complete(Ticket ticket) const;
  std::string missing(Ticket ticket, bool only_left) const;
  void let_peers_finish_reading() const noexcept;
  [[noreturn]] void fail(const std::string& reason);
  void throw_if_poisoned() const;

  std::shared_ptr<ThreadsGroup> group_;
  int rank_;
  int world_rank_;
  int exceptions_;  ///< in flight when this was made
  Monitor monitor_;
  Ticket next_ = 0;                          ///< transfers started
  Ticket active_ = 0;                        ///< transfers whose own part is done: the one that is worked at
  std::vector<char> copied_;                 ///< of the active transfer, by peer
  std::vector<Contribution> contributions_;  ///< to a sum, by rank
};

/// Runs f(core) on `ranks` threads. When one throws, the others' collectives throw CollectiveError, and the first
/// failure is thrown here after all have ended. Returns the first status that is not 0, by rank.
int run_threads(int ranks, const Options& options, const std::function<int(std::unique_ptr<ThreadsRank>)>& f);

template <class DeviceType = device::Cpu>
class Threads : public Backend<ThreadsRank, DeviceType> {
 public:
  static constexpr std::string_view name = "threads";

  Threads split(int color) { return Threads(this->core().split(color)); }

  template <class F>
  static int run(int ranks, const Options& options, F f) {
    return run_threads(ranks, options, [&f](std::unique_ptr<ThreadsRank> core) {
      Threads communicator(std::move(core));
      return run_rank(f, communicator);
    });
  }

 private:
  explicit Threads(std::unique_ptr<ThreadsRank> core) : Backend<ThreadsRank, DeviceType>(std::move(core)) {}
};

template <class DeviceType>
inline constexpr bool supports_wire<Threads<DeviceType>, bf16> = true;

}  // namespace fsdp::comm
