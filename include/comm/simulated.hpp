// SPDX-License-Identifier: Apache-2.0
/// @file
/// The dry run's communicator: one rank that simulates the others. It moves no data and never waits.
///
/// It assumes that all ranks have the same values: a sum of values is this rank's value times the number of ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include <tessera/comm/collectives.hpp>
#include <tessera/fsdp/device/meta.hpp>

namespace fsdp::comm {

/// The simulated rank and size, and the scratch size of the simulated communicator as a function of its number of ranks
/// (see Mpi::scratch_bytes_for).
struct SimulatedWorld {
  int ranks = 1;                                           ///< number of ranks of the world
  int rank = 0;                                            ///< the simulated rank
  std::int64_t (*scratch_bytes_for)(int ranks) = nullptr;  ///< scratch bytes of a rank; nullptr: none
};

/// Returns the world of rank `rank` of a communicator C with `ranks` ranks.
template <class C>
SimulatedWorld simulated_world(int ranks, int rank) {
  SimulatedWorld world{.ranks = ranks, .rank = rank};
  if constexpr (requires { C::scratch_bytes_for(ranks); }) world.scratch_bytes_for = &C::scratch_bytes_for;
  return world;
}

/// Makes the simulated rank's monitor. Throws InputError unless 0 <= rank < ranks.
std::unique_ptr<Monitor> simulated_monitor(const SimulatedWorld& world, const Options& options);

/// A communicator that moves no data and never waits. Collectives are checked and recorded as on any other, so that a
/// dry run makes the same calls as a run.
template <class DeviceType = device::Meta>
class Simulated {
 public:
  using Device = DeviceType;
  static constexpr std::string_view name = "simulated";

  /// A request that is always complete.
  struct Request {
    static constexpr bool complete = true;  ///< nothing is ever pending
    Request() = default;
    /// Movable, as AsyncRequest requires.
    /// @{
    Request(Request&&) = default;
    Request& operator=(Request&&) = default;
    /// @}
    /// Returns true.
    bool test() const { return true; }
    /// Returns immediately.
    void wait() const {}
  };

  /// Throws InputError unless 0 <= world.rank < world.ranks.
  explicit Simulated(const SimulatedWorld& world, const Options& options = {})
      : world_(world), monitor_(simulated_monitor(world, options)) {}

  /// Returns the scratch bytes of the simulated communicator.
  std::int64_t scratch_bytes() const {
    return world_.scratch_bytes_for == nullptr ? 0 : world_.scratch_bytes_for(world_.ranks);
  }

  /// See Communicator. Collectives of tensors move no data; those of values assume that all ranks pass the same values.
  /// @{
  int rank() const { return world_.rank; }
  int size() const { return world_.ranks; }
  Monitor& monitor() { return *monitor_; }
  const Monitor& monitor() const { return *monitor_; }

  template <class T>
  Request all_gather(std::span<const Segment<T>>) {
    return {};
  }
  template <class T>
  Request all_to_all(std::span<const Exchange<T>>) {
    return {};
  }
  template <class Wire>
  Request reduce_scatter(std::span<const Segment<float>>, Write) {
    return {};
  }
  template <class Wire>
  Request all_reduce(std::span<const Segment<float>>) {
    return {};
  }

  void reduce(std::span<double> values, Reduction reduction) { repeat(values, reduction); }
  void reduce(std::span<std::int64_t> values, Reduction reduction) { repeat(values, reduction); }
  void broadcast(std::span<std::byte>, int) {}
  void gather_bytes(std::span<const std::byte> mine, std::span<std::byte> all) {
    if (!mine.empty())
      for (std::size_t at = 0; at < all.size(); ++at) all[at] = mine[at % mine.size()];
  }
  void barrier() {}
  /// @}

  /// Assumes that all ranks pass the same color, so the result has the same ranks. Use `split(communicator, color_of)`
  /// of tessera/comm/collectives.hpp instead, which knows all ranks' colors.
  Simulated split(int) { return split_into(world_); }
  /// Makes a communicator of the given size and rank, with this one's options and scratch function.
  Simulated split_into(const SimulatedWorld& world) {
    SimulatedWorld part = world;
    part.scratch_bytes_for = world_.scratch_bytes_for;
    return Simulated(part, monitor_->options);
  }

  /// Runs f(communicator) on the calling thread. Returns f's status.
  template <class F>
  static int run(const SimulatedWorld& world, const Options& options, F f) {
    Simulated simulated(world, options);
    return run_rank(f, simulated);
  }

 private:
  template <class T>
  void repeat(std::span<T> values, Reduction reduction) {
    if (reduction != Reduction::sum) return;
    for (T& value : values) value *= static_cast<T>(world_.ranks);
  }

  SimulatedWorld world_;
  std::unique_ptr<Monitor> monitor_;
};

template <class DeviceType>
inline constexpr bool supports_wire<Simulated<DeviceType>, bf16> = true;

extern template class Simulated<device::Meta>;
FSDP_COLLECTIVES(extern template, Simulated<device::Meta>)

}  // namespace fsdp::comm
