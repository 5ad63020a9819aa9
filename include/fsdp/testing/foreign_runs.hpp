// SPDX-License-Identifier: Apache-2.0
/// @file
/// Trains a user-defined loop over Threads and returns the results, which its suite compares
/// (tessera/fsdp/testing/foreign_loop.hpp). Contains no tests.
#pragma once

#include <tessera/fsdp/core/language.hpp>  // must precede all other includes

#include <cstddef>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/core/function_ref.hpp>
#include <tessera/fsdp/core/has_member.hpp>
#include <tessera/fsdp/core/policy_text.hpp>
#include <tessera/fsdp/module/stack.hpp>
#include <tessera/fsdp/optim/optimizer.hpp>
#include <tessera/fsdp/optim/sharded.hpp>
#include <tessera/fsdp/precision/policies.hpp>
#include <tessera/fsdp/testing/results.hpp>

namespace fsdp::testing {

/// Configuration of a run of the loop.
template <class Strategy>
struct ForeignRun {
  int ranks = 1;
  int micro_batches = 1;
  Strategy strategy = {};
  std::vector<int> steps = {0, 1, 2};  ///< numbers of the steps to run
  int interrupted = -1;                ///< number of the computation of step 1 that throws; -1: none throws
  int forfeits = -1;             ///< rank that throws and forfeits the step; -1: all ranks throw, and repeat the step
  std::string frozen_unit = {};  ///< name of the unit whose tensors are frozen; empty: none
  std::vector<std::string> frozen = {};  ///< tensors to freeze in addition to those that the loop itself freezes

  /// Returns a description of the run.
  std::string in_words() const {
    std::string text = message(ranks, ranks == 1 ? " rank, " : " ranks, ", micro_batches,
                               micro_batches == 1 ? " micro-batch, " : " micro-batches, ", policy_text(strategy),
                               frozen_unit.empty() ? "" : ", frozen " + frozen_unit);
    if (interrupted < 0) return text;
    return message(text, ", computation ", interrupted, " of step 1",
                   forfeits < 0 ? " throws on all ranks" : message(" throws on rank ", forfeits, ", which forfeits"));
  }
};

namespace detail {

FSDP_HAS_MEMBER(order)
FSDP_HAS_MEMBER(unit_options)

/// The exception that is thrown at a computation.
struct Interruption : std::runtime_error {
  Interruption() : std::runtime_error("thrown by the test") {}
};

/// A pass that throws an Interruption in computation number `at`, counted from 0; never if `at` is -1.
template <class Stack>
class InterruptedPass {
 public:
  InterruptedPass(Pass<Stack>& pass, int at) : pass_(pass), left_(at) {}

  Use<Stack> forward(int unit) { return interrupted(pass_.forward(unit)); }
  Use<Stack> backward(int unit) { return interrupted(pass_.backward(unit)); }
  Use<Stack> both(int unit) { return interrupted(pass_.both(unit)); }
  Use<Stack> enter() { return interrupted(pass_.enter()); }
  std::optional<sharding::Task> next() const { return pass_.next(); }
  bool poll(int most = std::numeric_limits<int>::max()) { return pass_.poll(most); }
  void progress() { pass_.progress(); }

 private:
  Use<Stack> interrupted(Use<Stack> use) {
    if (left_ >= 0 && left_-- == 0) throw Interruption();
    return use;
  }

  Pass<Stack>& pass_;
  int left_;
};

/// Returns the order of a loop's computations.
template <class Loop>
Order foreign_order() {
  if constexpr (has_order<Loop>())
    return Loop::order();
  else
    return chain(static_cast<int>(Loop::units().size()));
}

template <class Strategy, class Optimizer = optim::Sgd>
using LoopSharded = Sharded<Stack<Strategy, comm::Threads<>, Fp32>, Optimizer>;

template <class Loop>
ShardedSettings<optim::Sgd> foreign_settings(int micro_batches) {
  ShardedSettings<optim::Sgd> settings;
  settings.orders = {foreign_order<Loop>()};
  settings.micro_batches = micro_batches;
  settings.rules.clip = 1;
  if constexpr (has_unit_options<Loop>()) settings.unit_options = Loop::unit_options();
  return settings;
}

/// Calls train(sharded, rank, result) on every rank. `train` returns the losses of the steps that it runs, and may add
/// to the result of rank 0. Returns losses, weights and bytes. Calls units() again for the plan, and expects the same
/// units. Rethrows the error of the first rank that failed.
template <class Strategy, class Optimizer, class Train>
RunResult run_sharded(int ranks, FunctionRef<std::vector<Unit>()> units, const Strategy& strategy,
                      const ShardedSettings<Optimizer>& settings, Train train) {
  using Tested = LoopSharded<Strategy, Optimizer>;
  RunResult result(ranks);
  comm::Threads<>::run(ranks, {.checks = true, .record = true}, [&](comm::Threads<>& communicator) {
    const int rank = communicator.rank();
    Tested sharded(communicator, units(), strategy, settings);
    sharded.initialize(3);
    const std::vector<double> losses = train(sharded, rank, result);
    sharded.module().synchronize();
    result.planned[static_cast<std::size_t>(rank)] = Tested::plan(ranks, rank, units(), strategy, settings).bytes;
    result.taken[static_cast<std::size_t>(rank)] = sharded.held().bytes;
    TensorsByName weights;
    sharded.with_full({"*"}, [&](const Parameter& parameter, Tensor<const float> values) {
      weights[parameter.name].assign(values.data(), values.data() + values.numel());
    });
    if (rank != 0) return;
    result.losses = losses;
    result.weights = weights;
  });
  return result;
}

}  // namespace detail

/// Trains the loop. Rethrows the error of the first rank that failed.
template <class Loop, class Strategy>
RunResult run_foreign(const ForeignRun<Strategy>& run) {
  auto settings = detail::foreign_settings<Loop>(run.micro_batches);
  auto& frozen = settings.unit_options.frozen;
  frozen.insert(frozen.end(), run.frozen.begin(), run.frozen.end());

  const auto train = [&]<class Tested>(Tested& sharded, int rank, RunResult&) {
    std::vector<double> losses;
    const auto make_step = [&](int step, int interrupted) {
      auto pass = sharded.train();
      detail::InterruptedPass<typename Tested::Stack> watched(pass, interrupted);
      double loss = 0;
      try {
        for (int m = 0; m < run.micro_batches; ++m)
          loss += Loop::compute(watched, step, rank * run.micro_batches + m, run.ranks * run.micro_batches);
        pass.finish();
      } catch (const detail::Interruption&) {
        if (run.forfeits != rank) throw;
        pass.forfeit();
      }
      const auto decision = sharded.step(loss, {.lr = detail::lr_of<Loop>()});
      if (decision.skipped == 0) losses.push_back(decision.loss);
    };
    for (const int step : run.steps) {
      const bool throws = step == 1 && (run.forfeits < 0 || run.forfeits == rank);
      try {
        make_step(step, throws ? run.interrupted : -1);
      } catch (const detail::Interruption&) {
        make_step(step, -1);
      }
    }
    return losses;
  };
  return detail::run_sharded(
      run.ranks, [] { return Loop::units(); }, run.strategy, settings, train);
}

}  // namespace fsdp::testing
