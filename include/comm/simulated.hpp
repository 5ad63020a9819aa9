// SPDX-License-Identifier: Apache-2.0
/// @file
/// One rank of a world that does not exist: the dry run's communicator. It moves nothing and never waits.
///
/// What other ranks would send is taken to be what this rank has: a sum of values is size times this rank's value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include <comm/communicator.hpp>
#include <comm/launch.hpp>
#include <fsdp/device/meta.hpp>

namespace fsdp::comm {

/// Which rank of how many, and the scratch of the communicator that it stands for: a function of its ranks (see
/// Mpi::scratch_bytes_for), or nullptr where there is none.
struct SimulatedWorld {
  int ranks = 1;
  int rank = 0;
  std::int64_t (*scratch_bytes_for)(int ranks) = nullptr;
};

/// What one rank of communicator C, with so many ranks, stands in.
template <class C>
SimulatedWorld simulated_world(int ranks, int rank) {
  SimulatedWorld world{.ranks = ranks, .rank = rank};
  if constexpr (requires { C::scratch_bytes_for(ranks); }) world.scratch_bytes_for = &C::scratch_bytes_for;
  return world;
}

/// Its monitor. Throws InputError for a rank that the world has not.
std::unique_ptr<Monitor> simulated_monitor(const SimulatedWorld& world, const Options& options);

/// One rank of a world that does not exist. It moves nothing and never waits; collectives are checked and recorded as
/// everywhere, so that a dry run makes the calls of a run.
template <class DeviceType = device::Meta>
class Simulated {
 public:
  using Device = DeviceType;
  static constexpr std::string_view name = "simulated";

  /// Always done.
  struct Request {
    Request() = default;
    /// Moved as others are.
    /// @{
    Request(Request&&) = default;
    Request& operator=(Request&&) = default;
    /// @}
    /// Done from the start.
    bool test() const { return true; }
    /// Returns at once.
    void wait() const {}
  };

  /// Throws InputError for a rank that the world has not.
  explicit Simulated(const SimulatedWorld& world, const Options& options = {})
      : world_(world), monitor_(simulated_monitor(world, options)) {}

  /// As Communicator asks.
  /// @{
  int rank() const { return world_.rank; }
  int size() const { return world_.ranks; }
  Monitor& monitor() { return *monitor_; }
  const Monitor& monitor() const { return *monitor_; }
  /// @}
  /// That of the communicator that it stands for.
  std::int64_t scratch_bytes() const {
    return world_.scratch_bytes_for == nullptr ? 0 : world_.scratch_bytes_for(world_.ranks);
  }

  /// As Communicator asks, without a byte moved.
  /// @{
  template <class T>
  Request all_gather(std::span<const Segment<T>>) {
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
  /// @}

  /// As Communicator asks, as if all ranks had given the same.
  /// @{
  void reduce(std::span<double> values, Reduction reduction) { repeat(values, reduction); }
  void reduce(std::span<std::int64_t> values, Reduction reduction) { repeat(values, reduction); }
  void broadcast(std::span<std::byte>, int) {}
  void gather_bytes(std::span<const std::byte> mine, std::span<std::byte> all) {
    if (!mine.empty())
      for (std::size_t at = 0; at < all.size(); ++at) all[at] = mine[at % mine.size()];
  }
  void barrier() {}
  /// @}

  /// Nobody can say the other ranks' colors: they are taken to be this rank's. Use `split(communicator, color_of)` of
  /// comm/collectives.hpp, which knows them all.
  Simulated split(int) { return split_into(world_); }
  /// This rank's place in a smaller world.
  Simulated split_into(const SimulatedWorld& world) {
    SimulatedWorld part = world;
    part.scratch_bytes_for = world_.scratch_bytes_for;
    return Simulated(part, monitor_->options);
  }

  /// Runs f(communicator) on the calling thread. Returns its status.
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

}  // namespace fsdp::comm
