// SPDX-License-Identifier: Apache-2.0
/// @file
/// Trains a small network of odd sizes, written in plain loops, over Threads, and returns the results, which the suite
/// of strategies compares. Contains no tests, and needs tessera::sharding alone.
///
/// Every tensor is used by itself, element by element, so that results do not depend on where a layout puts it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/device/memory.hpp>
#include <tessera/fsdp/module/stack.hpp>
#include <tessera/fsdp/optim/sharded.hpp>
#include <tessera/fsdp/precision/policies.hpp>

namespace fsdp::testing {

/// A case: one way to train.
struct StrategyCase {
  int ranks = 1;
  int micro_batches = 1;
  bool tied = false;
  UnitOptions units = {};

  /// Returns the case as text.
  std::string in_words() const {
    return message(ranks, ranks == 1 ? " rank, " : " ranks, ", micro_batches,
                   micro_batches == 1 ? " micro-batch" : " micro-batches", tied ? ", embedding and head tied" : "",
                   units.recompute ? ", blocks recomputed" : "",
                   units.frozen.empty() ? "" : message(", frozen ", units.frozen.front()),
                   units.replicated.empty() ? "" : message(", replicated ", units.replicated.front()),
                   units.blocks_per_unit == 1 ? "" : message(", ", units.blocks_per_unit, " blocks in a unit"));
  }
};

/// The results of a run.
struct StrategyRun {
  std::vector<double> losses;
  std::map<std::string, std::vector<float>> weights;  ///< whole tensors by name
  std::map<std::string, std::vector<float>> states;   ///< of the optimizer, whole, as "parameter.state"
  device::BytesByKind planned{}, taken{};             ///< of rank 0
  std::int64_t gathers = 0, reductions = 0;           ///< that rank 0's schedule has in a step
  std::int64_t gathered = 0, reduced = 0;             ///< collectives that rank 0 took part in, in one step
};

namespace detail {

/// Returns the number of collectives of this kind on all axes.
template <class Module>
std::int64_t recorded(Module& module, std::string_view what) {
  std::int64_t count = 0;
  for (auto* axis : module.communicators())
    count += std::ranges::count(axis->monitor().records, what,
                                [](const comm::Record& record) { return std::string_view(record.label.what); });
  return count;
}

/// Counts a step's collectives that rank 0 took part in.
template <class Module>
void count_step(Module& module, StrategyRun& run) {
  run.gathered = recorded(module, "weights");
  run.reduced = recorded(module, "gradients");
}
/// Counts the collectives in rank 0's schedule of a step.
template <class Module>
void count_schedule(Module& module, StrategyRun& run) {
  const auto in_list = [&](sharding::Action action) {
    return std::ranges::count(module.schedule(sharding::Pass::train), action, &sharding::Task::action);
  };
  run.gathers = in_list(sharding::Action::gather);
  run.reductions = in_list(sharding::Action::reduce);
}

/// A table of tokens, blocks h + scale * down(tanh(up(norm * h))), and a head with the cross entropy of the next token.
/// The head's weights are the table's if both are tied.
struct StrategyNet {
  static constexpr int blocks = 3, width = 13, inner = 17, tokens = 23, length = 2;
  using Values = std::vector<float>;

  static std::vector<Unit> units(bool tied) {
    const auto tensor = [](std::string name, const Shape& shape, double deviation) {
      return Parameter{.name = std::move(name), .shape = shape, .initial = Initial::normal(deviation)};
    };
    std::vector<Unit> list{
        {.name = "embedding", .parameters = {tensor("table", {tokens, width}, 0.5)}, .backward_needs_weights = false}};
    for (int block = 0; block < blocks; ++block) {
      const std::string prefix = message("layers.", block, ".");
      list.push_back({.name = message("block ", block),
                      .parameters = {tensor(prefix + "norm", {width}, 1), tensor(prefix + "up", {inner, width}, 0.3),
                                     tensor(prefix + "down", {width, inner}, 0.3), tensor(prefix + "scale", {1}, 1)}});
    }
    list.push_back({.name = "head", .parameters = {tensor(tied ? "table" : "head", {tokens, width}, 0.3)}});
    return list;
  }

  /// Computes a piece, of `length` tokens, and returns its part of the step's loss.
  template <class Pass>
  static double compute(Pass& pass, int piece, int pieces, bool trains) {
    const auto token = [&](int at) { return (5 * at + 11 * piece) % tokens; };
    std::vector<Values> states(1, Values(length * width)), inner_states;
    Values& first = states.front();
    {
      const auto use = pass.forward(0);
      for (int at = 0; at < length; ++at)
        std::copy_n(use.weight(0).data() + token(at) * width, width, first.begin() + at * width);
    }
    for (int block = 0; block < blocks; ++block) {
      const auto use = pass.forward(1 + block);
      const float *norm = use.weight(0).data(), scale = use.weight(3).data()[0];
      Values next = states.back(), activations(length * inner);
      for (int at = 0; at < length; ++at) {
        const float* const x = states.back().data() + at * width;
        float* const u = activations.data() + at * inner;
        for (int i = 0; i < inner; ++i) {
          for (int j = 0; j < width; ++j) u[i] += use.weight(1).data()[i * width + j] * norm[j] * x[j];
          u[i] = std::tanh(u[i]);
        }
        for (int j = 0; j < width; ++j)
          for (int i = 0; i < inner; ++i) next[index(at, j)] += scale * use.weight(2).data()[j * inner + i] * u[i];
      }
      inner_states.push_back(std::move(activations));
      states.push_back(std::move(next));
    }
    double loss = 0;
    Values scores(length * tokens);  // then their gradient
    {
      const auto use = pass.forward(1 + blocks);
      const double share = 1.0 / (length * pieces);
      for (int at = 0; at < length; ++at) {
        float* const z = scores.data() + at * tokens;
        double sum = 0;
        for (int k = 0; k < tokens; ++k) {
          for (int j = 0; j < width; ++j) z[k] += use.weight(0).data()[k * width + j] * states.back()[index(at, j)];
          sum += std::exp(static_cast<double>(z[k]));
        }
        const int target = (token(at) * 7 + 1) % tokens;
        loss += share * (std::log(sum) - static_cast<double>(z[target]));
        for (int k = 0; k < tokens; ++k)
          z[k] = static_cast<float>(share * (std::exp(static_cast<double>(z[k])) / sum - (k == target ? 1 : 0)));
      }
    }
    if (trains) backward(pass, token, states, inner_states, scores);
    return loss;
  }

 private:
  static std::size_t index(int at, int column) { return static_cast<std::size_t>(at * width + column); }

  template <class Use>
  static void put(const Use& use, std::size_t tensor, const Values& values) {
    const auto gradient = use.gradient(tensor);
    if (!gradient.wanted()) return;
    const bool adds = gradient.next() == Write::accumulate;
    float* const to = gradient.tensor.data();
    for (std::size_t i = 0; i < values.size(); ++i) to[i] = adds ? to[i] + values[i] : values[i];
  }

  template <class Pass, class Token>
  static void backward(Pass& pass, Token token, const std::vector<Values>& states,
                       const std::vector<Values>& inner_states, const Values& scores) {
    Values d(length * width);
    {
      const auto use = pass.backward(1 + blocks);
      Values of_head(tokens * width);
      for (int at = 0; at < length; ++at)
        for (int k = 0; k < tokens; ++k)
          for (int j = 0; j < width; ++j) {
            const float score = scores[static_cast<std::size_t>(at * tokens + k)];
            d[index(at, j)] += score * use.weight(0).data()[k * width + j];
            of_head[index(k, j)] += score * states.back()[index(at, j)];
          }
      put(use, 0, of_head);
    }
    for (int block = blocks; block-- > 0;) {
      const auto use = pass.backward(1 + block);
      const auto number = static_cast<std::size_t>(block);
      const float *norm = use.weight(0).data(), *up = use.weight(1).data(), *down = use.weight(2).data();
      const float scale = use.weight(3).data()[0];
      Values of_norm(width), of_up(inner * width), of_down(width * inner), of_scale(1);
      for (int at = 0; at < length; ++at) {
        const float* const x = states[number].data() + at * width;
        const float* const u = inner_states[number].data() + at * inner;
        float* const dy = d.data() + at * width;
        Values dx(dy, dy + width);
        for (int i = 0; i < inner; ++i) {
          float du = 0;
          for (int j = 0; j < width; ++j) {
            const auto of_weight = static_cast<std::size_t>(j * inner + i);
            du += scale * down[of_weight] * dy[j];
            of_down[of_weight] += scale * dy[j] * u[i];
            of_scale[0] += down[of_weight] * dy[j] * u[i];
          }
          du *= 1 - u[i] * u[i];
          for (int j = 0; j < width; ++j) {
            of_up[index(i, j)] += du * norm[j] * x[j];
            of_norm[static_cast<std::size_t>(j)] += du * up[i * width + j] * x[j];
            dx[static_cast<std::size_t>(j)] += du * up[i * width + j] * norm[j];
          }
        }
        std::copy(dx.begin(), dx.end(), dy);
      }
      put(use, 0, of_norm);
      put(use, 1, of_up);
      put(use, 2, of_down);
      put(use, 3, of_scale);
    }
    const auto use = pass.backward(0);
    Values of_table(tokens * width);
    for (int at = 0; at < length; ++at)
      for (int j = 0; j < width; ++j) of_table[index(token(at), j)] += d[index(at, j)];
    put(use, 0, of_table);
  }
};

}  // namespace detail

/// Trains for four steps. Rethrows the error of the first rank that failed.
template <class Strategy, class Optimizer>
StrategyRun train_loop(const Strategy& strategy, const StrategyCase& how, const Optimizer& optimizer, double lr) {
  using Comm = comm::Threads<>;
  using Tested = Sharded<Stack<Strategy, Comm, Fp32>, Optimizer>;
  using Net = detail::StrategyNet;
  const std::vector<Unit> units = Net::units(how.tied);
  typename Tested::Settings settings;
  settings.micro_batches = how.micro_batches;
  settings.optimizer = optimizer;
  settings.unit_options = how.units;
  StrategyRun run;
  Comm::run(how.ranks, {.checks = true, .record = true}, [&](Comm& communicator) {
    const int first = communicator.rank() * how.micro_batches, pieces = how.ranks * how.micro_batches;
    Tested sharded(communicator, units, strategy, settings);
    auto& module = sharded.module();
    sharded.initialize(3);
    std::vector<double> losses;
    for (int step = 0; step < 4; ++step) {
      for (auto* axis : module.communicators()) axis->monitor().records.clear();
      double loss = 0;
      auto pass = sharded.train();
      for (int m = 0; m < how.micro_batches; ++m) loss += Net::compute(pass, first + m, pieces, true);
      pass.finish();
      if (communicator.rank() == 0) detail::count_step(module, run);
      losses.push_back(sharded.step(loss, {.lr = lr}).loss);
    }
    {
      auto pass = sharded.evaluate();
      Net::compute(pass, first, pieces, false);
      pass.finish();
    }
    module.synchronize();
    const device::BytesByKind planned = Tested::plan(how.ranks, communicator.rank(), units, strategy, settings).bytes;
    const device::BytesByKind taken = sharded.held().bytes;
    std::map<std::string, std::vector<float>> weights;
    sharded.with_full({"*"}, [&](const Parameter& parameter, Tensor<const float> values) {
      weights[parameter.name].assign(values.data(), values.data() + values.numel());
    });
    if (communicator.rank() != 0) return;
    run.losses = losses;
    run.weights = weights;
    run.planned = planned;
    run.taken = taken;
    detail::count_schedule(module, run);
  });
  return run;
}

}  // namespace fsdp::testing
