// SPDX-License-Identifier: Apache-2.0
/// @file
/// Runs of a network: over ranks that are threads, and without the library.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/sharded.hpp>
#include <tessera/fsdp/sharding/run_time.hpp>

#include "networks.hpp"
#include "plain_loop.hpp"

namespace fsdp::foreign {

using Comm = comm::Threads<>;
using AnyStrategy = std::variant<RunTimeSharded, RunTimeGrouped, RunTimeHybridFull, Replicated>;

template <class Strategy, class Precision = Fp32>
using ShardedBy = Sharded<Stack<Strategy, Comm, Precision>>;
/// The one that tests of behaviour take.
using Fsdp2 = ShardedBy<RunTimeSharded>;

enum class In { fp32, bf16 };

constexpr std::uint64_t seed = 7;
constexpr double lr = 0.02;
constexpr double clip = 0.35;  ///< of the gradients' norm: some steps are clipped, and others are not

/// What is run.
struct Request {
  int ranks = 1;
  std::vector<int> micro_batches = {1, 1, 1, 1};  ///< of each step
  AnyStrategy strategy = {};
  In precision = In::fp32;
  bool fixed_slots = true;
};

/// What came out: losses of the steps, all weights by name, and the gradients' norms if ranks trained.
struct Outcome {
  std::vector<double> losses;
  std::map<std::string, std::vector<float>> weights;
  std::vector<double> norms = {};
};

/// Settings of a network with that many micro-batches: AdamW, with clipping.
ShardedSettings<> settings_for(const Network& network, int micro_batches);

/// The whole weights. Collective.
template <class AnySharded>
std::map<std::string, std::vector<float>> whole_weights(AnySharded& sharded) {
  std::map<std::string, std::vector<float>> whole;
  sharded.with_full({"*"}, [&](const Parameter& parameter, Tensor<const float> values) {
    whole[parameter.name].assign(values.data(), values.data() + values.numel());
  });
  return whole;
}

/// Trains one step for each number of micro-batches. Collective.
template <class AnySharded>
Outcome steps_of(AnySharded& sharded, const Network& network, const std::vector<int>& micro_batches) {
  const Comm& communicator = sharded.module().communicator();
  Outcome outcome;
  for (int step = 0; step < std::ssize(micro_batches); ++step) {
    const int count = micro_batches[static_cast<std::size_t>(step)];
    auto pass = sharded.train(count);
    AnyPass any = any_pass(pass);
    double loss = 0;
    for (int m = 0; m < count; ++m)
      loss += network.compute(any, step, communicator.rank() * count + m, communicator.size() * count);
    pass.finish();
    const auto decision = sharded.step(loss, {.lr = lr});
    outcome.losses.push_back(decision.loss);
    outcome.norms.push_back(decision.norm);
  }
  outcome.weights = whole_weights(sharded);
  return outcome;
}

/// Trains over ranks. Every rank's plan must be what it holds.
Outcome train_sharded(const Network& network, const Request& request);

/// Trains without the library, by S, with the sums in the order of a strategy.
template <class S>
Outcome train_plain(const Network& network, const Request& request, plain::Reduce reduce, int ranks_per_group = 0);

/// Losses and weights have the same bits.
void expect_same(const Outcome& found, const Outcome& expected);
/// The largest difference of the losses, and of a tensor's weights, relative to what they should be.
double difference(const Outcome& found, const Outcome& expected);

/// Calls f(communicator) on every rank of as many threads. `checks`: collectives are compared over ranks.
template <class F>
void on_ranks(int ranks, F f, bool checks = false) {
  Comm::run(ranks, {.checks = checks}, f);
}

}  // namespace fsdp::foreign
