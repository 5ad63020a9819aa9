// SPDX-License-Identifier: Apache-2.0
/// @file
/// The exchanges of a unit's activations that are in flight between its stages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
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
    drop();
    parts_ = static_cast<std::size_t>(parts);
  }
  /// Discards exchanges that an unfinished pass has left in flight.
  void drop() {
    for (auto& [step, parts] : moving_) parts.clear();  // keeps their memory, which every unit needs again
  }

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
    for (Moving& moving : moving_[step]) moving.pending.wait(stream);
  }
  /// @}
  /// Lets exchanges in flight make progress.
  void progress() {
    for (auto& [step, parts] : moving_)
      for (Moving& moving : parts) moving.pending.progress();
  }

 private:
  struct Moving {
    Counts from, to;  ///< read by the collective until it is complete
    comm::Pending<Comm> pending;
  };

  Moving& of(sharding::Step step, int part) {
    std::vector<Moving>& parts = moving_[step];
    parts.resize(parts_);
    return parts[static_cast<std::size_t>(part)];
  }

  std::size_t parts_ = 0;                                 ///< number of parts of the unit's middle
  std::map<sharding::Step, std::vector<Moving>> moving_;  // [kinds][parts]
};

}  // namespace fsdp
