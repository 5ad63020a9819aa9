// SPDX-License-Identifier: Apache-2.0
/// @file
/// Steps that are queued and not yet complete, with the memory that they read.
#pragma once

#include <cstdint>
#include <deque>
#include <future>
#include <span>
#include <utility>
#include <vector>

#include <tessera/fsdp/execution/count_exchange.hpp>
#include <tessera/fsdp/execution/sharded_model.hpp>

#include <support/batch_memory.hpp>
#include <support/stack_runner.hpp>

namespace fsdp::test {

/// Draws and counts batches one step ahead, as the trainer does. If results are read late, no work of a step runs
/// before the host has queued the next step: a host that waits for its current step reaches the deadline.
template <class Model>
class StepsAhead {
 public:
  using Comm = typename Model::Stack::Comm;

  StepsAhead(ShardedModel<Model>& module, const RunOptions& options)
      : module_(module), options_(options), exchange_(module.communicator(), module.ledger()) {}

  /// Begins a step and returns its micro-batches.
  std::span<const TokenBatch> begin_step(std::int64_t step) {
    if (drawn_.empty() || drawn_.back().step != step) draw(step);
    drawn_.back().targets = static_cast<double>(exchange_.finish().valid_targets);
    DrawnStep& now = drawn_.back();
    if (step + 1 < options_.steps) draw(step + 1);
    ++begun_;
    if constexpr (requires { Comm::Device::take_races(); })
      if (options_.reads_late && begun_ > 1) {
        now.gate.emplace();
        module_.stream().submit("gate", {}, [open = now.gate->get_future().share()](auto&) { open.wait(); });
      }
    return now.micro_batches;
  }
  /// Number of targets of the step that began last.
  double targets() const { return drawn_[begun_ - 1].targets; }
  std::int64_t steps() const { return static_cast<std::int64_t>(begun_); }

  /// Releases the oldest step, whose results are read next; returns its number of targets.
  double release_oldest() {
    drawn_.front().open_gate();
    return drawn_.front().targets;
  }
  void forget_oldest() {
    drawn_.pop_front();
    --begun_;
  }

 private:
  void draw(std::int64_t step) {
    const SequenceGroup group = module_.sequence_group();
    DrawnStep& drawn = drawn_.emplace_back();
    drawn.step = step;
    exchange_.start([&] {
      BatchCounts counts;
      for (int m = 0; m < options_.micro_batches; ++m) {
        const Place place{.step = static_cast<int>(step),
                          .rank = group.index,
                          .ranks = group.count,
                          .micro_batch = m,
                          .micro_batches = options_.micro_batches,
                          .fixed_pieces = module_.step_pieces()};
        if (!module_.step_piece(m)) break;
        drawn.micro_batches.push_back(drawn.memory.add(options_.batch(place)));
        const std::int64_t before = step * place.pieces() + place.piece();
        drawn.micro_batches.back().set_noise(1, before * options_.most_sequences);
        counts += nn::counts_of_part(drawn.micro_batches.back(), group.member, group.size);
      }
      return counts;
    });
  }

  ShardedModel<Model>& module_;
  const RunOptions& options_;
  CountExchange<Comm> exchange_;
  std::deque<DrawnStep> drawn_;  ///< steps that have begun, then the one drawn ahead
  std::size_t begun_ = 0;
};

}  // namespace fsdp::test
