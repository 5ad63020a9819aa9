// SPDX-License-Identifier: Apache-2.0
/// @file
/// Steps that are queued and not yet complete, with the memory that they read.
#pragma once

#include <cstdint>
#include <span>

#include <tessera/fsdp/execution/count_exchange.hpp>
#include <tessera/fsdp/module/sharded_module.hpp>

#include <support/batch_memory.hpp>
#include <support/stack_runner.hpp>

namespace fsdp::test {

/// Draws and counts batches one step ahead, as the trainer does. If results are read late, no work of a step runs
/// before the host has queued the next step: a host that waits for its current step reaches the deadline.
template <class Types>
class StepsAhead : public DrawnSteps {
 public:
  using Comm = typename ModuleMemory<Types>::Comm;

  StepsAhead(ModuleMemory<Types>& module, const RunOptions& options)
      : DrawnSteps(module, options),
        module_(module),
        all_steps_(options.steps),
        exchange_(module.communicator(), module.ledger()) {}
  /// Opens all gates first: the exchange waits for queued work.
  ~StepsAhead() {
    while (steps() > 0) forget_oldest();
  }

  /// Begins a step and returns its micro-batches.
  std::span<const TokenBatch> begin_step(std::int64_t step) {
    if (!is_drawn(step)) exchange_.start([&] { return draw(step); });
    const DrawnStep& now = begin(exchange_.finish().valid_targets);
    if (step + 1 < all_steps_) exchange_.start([&] { return draw(step + 1); });
    if constexpr (requires { Comm::Device::take_races(); })
      if (const auto open = shut_gate(); open.valid())
        module_.stream().submit("gate", {}, [open](auto&) { open.wait(); });
    return now.micro_batches;
  }

 private:
  ModuleMemory<Types>& module_;
  std::int64_t all_steps_;
  CountExchange<Comm> exchange_;
};

}  // namespace fsdp::test
