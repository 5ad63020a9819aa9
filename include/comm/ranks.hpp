// SPDX-License-Identifier: Apache-2.0
/// @file
/// A type-erased communicator for small host values, so that host code compiles once for all backends.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include <tessera/comm/collectives.hpp>

namespace fsdp::comm {

/// A non-owning reference to a communicator of any type. Its collectives call those of tessera/comm/collectives.hpp.
class Ranks {
 public:
  /// Refers to `communicator`, which must outlive this object and its copies.
  template <class C>
  requires(!std::same_as<std::remove_const_t<C>, Ranks> && Communicator<C>) Ranks(C& communicator)
      : communicator_(&communicator),
        monitor_(&communicator.monitor()),
        rank_(communicator.rank()),
        size_(communicator.size()),
        calls_(&calls<C>) {}

  /// See Communicator.
  /// @{
  int rank() const { return rank_; }
  int size() const { return size_; }
  Monitor& monitor() const { return *monitor_; }
  /// @}

  /// Collectives of small values in host memory.
  /// @{
  void reduce(std::span<std::int64_t> values, Reduction reduction, Label label = {}) const {
    calls_->reduce_counts(communicator_, values, reduction, label);
  }
  void reduce(std::span<double> values, Reduction reduction, Label label = {}) const {
    calls_->reduce_values(communicator_, values, reduction, label);
  }
  void broadcast(std::span<std::byte> bytes, int root, Label label = {}) const {
    calls_->broadcast(communicator_, bytes, root, label);
  }
  void gather_bytes(std::span<const std::byte> mine, std::span<std::byte> all, Label label = {}) const {
    calls_->gather_bytes(communicator_, mine, all, label);
  }
  void barrier(Label label = {}) const { calls_->barrier(communicator_, label); }
  /// @}

 private:
  struct Calls {
    void (*reduce_counts)(void*, std::span<std::int64_t>, Reduction, Label);
    void (*reduce_values)(void*, std::span<double>, Reduction, Label);
    void (*broadcast)(void*, std::span<std::byte>, int, Label);
    void (*gather_bytes)(void*, std::span<const std::byte>, std::span<std::byte>, Label);
    void (*barrier)(void*, Label);
  };
  template <class C, class T>
  static void reduce_by(void* c, std::span<T> values, Reduction reduction, Label label) {
    comm::reduce(*static_cast<C*>(c), values, reduction, label);
  }
  template <class C>
  static void broadcast_by(void* c, std::span<std::byte> bytes, int root, Label label) {
    comm::broadcast(*static_cast<C*>(c), bytes, root, label);
  }
  template <class C>
  static void gather_bytes_by(void* c, std::span<const std::byte> mine, std::span<std::byte> all, Label label) {
    comm::gather_bytes(*static_cast<C*>(c), mine, all, label);
  }
  template <class C>
  static void barrier_by(void* c, Label label) {
    comm::barrier(*static_cast<C*>(c), label);
  }
  template <class C>
  static constexpr Calls calls = {reduce_by<C, std::int64_t>, reduce_by<C, double>, broadcast_by<C>, gather_bytes_by<C>,
                                  barrier_by<C>};

  void* communicator_;
  Monitor* monitor_;
  int rank_, size_;
  const Calls* calls_;
};

}  // namespace fsdp::comm
