// SPDX-License-Identifier: Apache-2.0
/// @file
/// Four user-defined policies without names. Each behaves like a built-in policy, so that results can be compared.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/sharding/own_strategy.hpp>
#include <tessera/trainer/train_main.hpp>

namespace mine {

/// Behaves like FullyShard.
struct Sharding {
  using AtRest = fsdp::buffer::Shard;
  using Layout = fsdp::buffer::PerParameter;
  int ahead;  ///< units that are gathered before they are used

  fsdp::sharding::Rules rules() const {
    return {.hold = fsdp::sharding::Hold::use, .reduce_every_micro_batch = true, .prefetch_depth = ahead};
  }
};

/// A complete communicator that forwards all calls to Threads.
class Ranks {
  using Threads = fsdp::comm::Threads<>;

 public:
  using Device = Threads::Device;
  using Request = Threads::Request;

  template <class F>
  static int run(int ranks, const fsdp::comm::Options& options, F f) {
    return Threads::run(ranks, options, [&f](Threads& threads) {
      Ranks communicator(std::move(threads));
      f(communicator);
    });
  }

  int rank() const { return threads_.rank(); }
  int size() const { return threads_.size(); }
  fsdp::comm::Monitor& monitor() { return threads_.monitor(); }
  const fsdp::comm::Monitor& monitor() const { return threads_.monitor(); }
  Ranks split(int color) { return Ranks(threads_.split(color)); }

  template <class T>
  Request all_gather(std::span<const fsdp::comm::Segment<T>> segments) {
    return threads_.all_gather(segments);
  }
  template <class Wire>
  Request reduce_scatter(std::span<const fsdp::comm::Segment<float>> segments, fsdp::Write write) {
    return threads_.reduce_scatter<Wire>(segments, write);
  }
  template <class Wire>
  Request all_reduce(std::span<const fsdp::comm::Segment<float>> segments) {
    return threads_.all_reduce<Wire>(segments);
  }
  template <class T>
  void reduce(std::span<T> values, fsdp::comm::Reduction reduction) {
    threads_.reduce(values, reduction);
  }
  void broadcast(std::span<std::byte> bytes, int root) { threads_.broadcast(bytes, root); }
  void gather_bytes(std::span<const std::byte> mine, std::span<std::byte> all) { threads_.gather_bytes(mine, all); }
  void barrier() { threads_.barrier(); }

 private:
  explicit Ranks(Threads threads) : threads_(std::move(threads)) {}

  Threads threads_;
};

/// Behaves like Bf16Mixed.
struct Precision {
  using Compute = fsdp::bf16;
  using Main = float;
  using Accumulate = float;
  using Reduce = float;
};

/// Behaves like TokensPerTile, with a run-time number that has no default.
class Tiles {
 public:
  explicit Tiles(std::int64_t tokens) : tokens_(tokens) {}
  fsdp::tiling::TilePlan plan(const fsdp::tiling::Problem& problem) const {
    return fsdp::tiling::cut(problem, tokens_);
  }

 private:
  std::int64_t tokens_;
};

}  // namespace mine
