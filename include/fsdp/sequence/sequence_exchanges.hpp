// SPDX-License-Identifier: Apache-2.0
/// @file
/// The exchanges of a unit's activations that are in flight between its stages.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <tessera/comm/collectives.hpp>
#include <tessera/fsdp/buffer/sequence.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/sharding/schedule.hpp>

namespace fsdp {

/// Exchanges of one unit: for each kind, one exchange for each part of its middle.
template <class Comm, class T>
class SequenceExchanges {
 public:
  using Stream = typename Comm::Device::Stream;
  using Counts = std::vector<std::vector<std::int64_t>>;  // [activations][K]: number of elements of each rank's part

  /// Begins a forward or a backward. All earlier exchanges must have been waited for.
  void begin(int parts) {
    for (auto& kind : moving_) {
      kind.clear();
      kind.resize(static_cast<std::size_t>(parts));
    }
  }
  /// Discards exchanges that an unfinished pass has left in flight.
  void drop() { begin(0); }

  /// Starts an exchange of activations from placement From to the other placement, ordered after the work that is on
  /// the stream now. `unit`: index of the unit, for messages.
  template <buffer::SequencePlacement From>
  void start(Comm& axis, Stream& stream, const sharding::Stage& stage, int unit, const std::vector<Tensor<T>>& from,
             Counts from_counts, const std::vector<Tensor<T>>& to, Counts to_counts) {
    Moving& moving = of(stage.step, stage.part);
    moving.from = std::move(from_counts);
    moving.to = std::move(to_counts);
    std::vector<buffer::Activation<const T, From>> sent;
    std::vector<buffer::Activation<T, buffer::OtherPlacement<From>>> received;
    for (std::size_t i = 0; i < from.size(); ++i) sent.push_back({from[i].data(), moving.from[i]});
    for (std::size_t i = 0; i < to.size(); ++i) received.push_back({to[i].data(), moving.to[i]});
    comm::after(axis, stream.record());
    moving.pending = buffer::redistribute(axis, sent, received, {"activations", unit});
  }

  /// Make the stream wait for one exchange, or for the exchanges of all parts.
  /// @{
  void wait(Stream& stream, sharding::Step step, int part) { of(step, part).pending.wait(stream); }
  void wait(Stream& stream, sharding::Step step) {
    for (Moving& moving : moving_[kind_of(step)]) moving.pending.wait(stream);
  }
  /// @}
  /// Lets exchanges in flight make progress.
  void progress() {
    for (auto& kind : moving_)
      for (Moving& moving : kind) moving.pending.progress();
  }

 private:
  struct Moving {
    Counts from, to;  ///< read by the collective until it is complete
    comm::Pending<Comm> pending;
  };

  static std::size_t kind_of(sharding::Step step) {
    switch (step) {
      case sharding::Step::to_heads: return 0;
      case sharding::Step::to_rows: return 1;
      case sharding::Step::gradient_to_heads: return 2;
      default: return 3;
    }
  }
  Moving& of(sharding::Step step, int part) { return moving_[kind_of(step)][static_cast<std::size_t>(part)]; }

  std::array<std::vector<Moving>, 4> moving_;  // [kinds][parts]
};

}  // namespace fsdp
