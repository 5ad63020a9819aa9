// SPDX-License-Identifier: Apache-2.0
/// @file
/// Runs of a network: over the ranks of any communicator, and in the plain loop.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/sharded.hpp>
#include <tessera/fsdp/sharding/run_time.hpp>
#include <tessera/fsdp/testing/results.hpp>

#include "networks.hpp"
#include "plain_loop.hpp"

namespace fsdp::foreign {

using Comm = comm::Threads<>;

template <class Strategy, class Precision = Fp32>
using ShardedBy = Sharded<Stack<Strategy, Comm, Precision>>;
/// The type that behaviour tests use.
using Fsdp2 = ShardedBy<RunTimeAny>;

enum class In { fp32, bf16 };

constexpr std::uint64_t seed = 7;
constexpr double lr = 0.02;
constexpr double lr_of(int step) { return lr / (1 + step % 4); }  ///< changes with each step
constexpr double usual_clip = 0.35;                               ///< bound on the gradient norm

/// Whether long tests run all of their cases: tests/long.sh sets TESSERA_SWEEP=whole.
bool sweeps_whole();

/// The settings of a run.
struct Request {
  int ranks = 1;
  std::vector<int> micro_batches = {1, 1, 1, 1};  ///< of each step
  AnyStrategy strategy = {};
  In precision = In::fp32;
  bool fixed_slots = true;
  double clip = usual_clip;
  std::map<std::string, plain::Sums> sums = {};  ///< by tensor; empty if it is the same for all
};

/// A strategy and the order of sums with which the plain loop is bit-identical to it.
struct Case {
  AnyStrategy strategy;
  plain::Sums sums = {};
};
/// All strategies that shard over one axis, and over two axes in groups of 2 of 4 ranks.
/// @{
std::vector<Case> cases_of_one_axis();
std::vector<Case> cases_of_two_axes();
/// @}
std::string text_of(const AnyStrategy& strategy);

/// The result of a run: the losses of the steps, all weights by name, and the gradient norms.
struct Outcome {
  std::vector<double> losses;
  std::map<std::string, std::vector<float>> weights;
  std::vector<double> norms = {};
};

/// Settings for a network with `micro_batches` micro-batches, AdamW and clipping.
ShardedSettings<> settings_for(const Network& network, int micro_batches, double clip = usual_clip);

/// Returns the unsharded weights. Collective.
template <class AnySharded>
std::map<std::string, std::vector<float>> whole_weights(AnySharded& sharded) {
  std::map<std::string, std::vector<float>> whole;
  sharded.with_full({"*"}, [&](const Parameter& parameter, Tensor<const float> values) {
    whole[parameter.name].assign(values.data(), values.data() + values.numel());
  });
  return whole;
}

/// Computes this rank's `count` micro-batches and returns the sum of their losses.
template <class Ranks>
double compute_all(const Network& network, AnyPass& pass, int step, const Ranks& ranks, int count) {
  double loss = 0;
  for (int m = 0; m < count; ++m) loss += network.compute(pass, step, ranks.rank() * count + m, ranks.size() * count);
  return loss;
}

/// Trains `steps` steps, each cut into the strategy's pieces. Collective.
template <class AnySharded>
Outcome steps_in_pieces(AnySharded& sharded, const Network& network, int steps) {
  const auto& module = sharded.module();
  Outcome outcome;
  for (int step = 0; step < steps; ++step) {
    auto pass = sharded.train();
    AnyPass any = any_pass(pass);
    std::vector<double> losses;
    for (int m = 0; m < module.settings().passes.micro_batches; ++m)
      if (const auto piece = module.step_piece(m))
        losses.push_back(network.compute(any, step, *piece, module.step_pieces()));
      else
        pass.skip();
    pass.finish();
    const auto decision = sharded.step(losses, {.lr = lr_of(step)});
    outcome.losses.push_back(decision.loss);
    outcome.norms.push_back(decision.norm);
  }
  outcome.weights = whole_weights(sharded);
  return outcome;
}

/// Trains one step for each entry of `micro_batches`. Collective.
template <class AnySharded>
Outcome steps_of(AnySharded& sharded, const Network& network, const std::vector<int>& micro_batches) {
  const auto& communicator = sharded.module().communicator();
  Outcome outcome;
  for (const int count : micro_batches) {
    const int step = static_cast<int>(std::ssize(outcome.losses));
    auto pass = sharded.train(count);
    AnyPass any = any_pass(pass);
    const double loss = compute_all(network, any, step, communicator, count);
    pass.finish();
    const auto decision = sharded.step(loss, {.lr = lr_of(step)});
    outcome.losses.push_back(decision.loss);
    outcome.norms.push_back(decision.norm);
  }
  outcome.weights = whole_weights(sharded);
  return outcome;
}

/// Trains over the ranks of `communicator` and expects that every rank uses exactly the planned memory. Collective.
template <class Precision, class Comm, class Strategy>
Outcome train_on(Comm& communicator, const Network& network, const Request& request, const Strategy& strategy) {
  ShardedSettings<> settings = settings_for(network, *std::ranges::max_element(request.micro_batches), request.clip);
  settings.fixed_slots = request.fixed_slots;
  Sharded<Stack<Strategy, Comm, Precision>> sharded(communicator, network.units, strategy, settings);
  sharded.initialize(seed);
  Outcome outcome = sharded.module().step_pieces() > 0
                        ? steps_in_pieces(sharded, network, static_cast<int>(std::ssize(request.micro_batches)))
                        : steps_of(sharded, network, request.micro_batches);
  testing::expect_planned_bytes(network.name, static_cast<std::size_t>(communicator.rank()), sharded.held().bytes,
                                sharded.planned().bytes);
  return outcome;
}

/// Trains over ranks that are threads.
Outcome train_sharded(const Network& network, const Request& request);

/// Trains in the plain loop with numbers of type S. `sums`: the order of sums of the tensors that the request does not
/// list.
template <class S>
Outcome train_plain(const Network& network, const Request& request, const plain::Sums& sums);
template <class S>
Outcome train_plain(const Network& network, const Request& request, plain::Reduce reduce, int ranks_per_group = 0) {
  return train_plain<S>(network, request, plain::Sums{reduce, ranks_per_group});
}

/// Returns a clipping bound such that some steps of a request are clipped and others are not.
double clip_of(const Network& network, Request request);
/// Expects that some steps were clipped and others were not.
void expect_clipping(const Outcome& found, double clip);

/// Calls f(request, expected) for each case: `request` with the strategy of the case, and the outcome of the plain
/// loop, which runs once for each order of sums. Some steps are clipped.
template <class F>
void with_expected(const Network& network, Request request, const std::vector<Case>& cases, F f) {
  request.clip = clip_of(network, request);
  std::map<plain::Sums, Outcome> expected;
  for (const Case& how : cases) {
    if (!expected.contains(how.sums)) expected.emplace(how.sums, train_plain<float>(network, request, how.sums));
    request.strategy = how.strategy;
    f(std::as_const(request), expected.at(how.sums));
  }
}

/// Expects bit-identical losses and weights.
void expect_same(const Outcome& found, const Outcome& expected);
/// The largest relative difference of the losses and of the weights of a tensor.
double difference(const Outcome& found, const Outcome& expected);

/// Calls f(communicator) on `ranks` threads. `checks`: compares collectives between ranks.
template <class F>
void on_ranks(int ranks, F f, bool checks = false) {
  Comm::run(ranks, {.checks = checks}, f);
}

/// Trains a network on ranks that are threads. f(communicator, sharded) makes the steps and returns their losses.
template <class F>
Outcome outcome_of(const Network& network, int ranks, const RunTimeAny& strategy, int micro_batches, F f,
                   bool checks = false) {
  Outcome outcome;
  const auto rank = [&](Comm& communicator) {
    Fsdp2 sharded(communicator, network.units, strategy, settings_for(network, micro_batches));
    sharded.initialize(seed);
    const std::vector<double> losses = f(communicator, sharded);
    const auto weights = whole_weights(sharded);
    if (communicator.rank() == 0) outcome = {losses, weights};
  };
  on_ranks(ranks, rank, checks);
  return outcome;
}

}  // namespace fsdp::foreign
