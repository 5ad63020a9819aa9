// SPDX-License-Identifier: Apache-2.0
/// @file
/// Trains a small network of odd sizes, written in plain loops, over Threads, and returns the results, which the suite
/// of strategies compares. Contains no tests, and needs only tessera::sharding.
///
/// Tensors are read and written element by element, so that results do not depend on their placement in a layout.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/module/units.hpp>
#include <tessera/fsdp/optim/sharded.hpp>
#include <tessera/fsdp/testing/foreign_runs.hpp>
#include <tessera/fsdp/testing/results.hpp>

namespace fsdp::testing {

/// A training configuration to test.
struct StrategyCase {
  int ranks = 1;
  int micro_batches = 1;
  bool tied = false;
  UnitOptions units = {};

  /// Returns a description of the case.
  std::string in_words() const {
    return message(ranks, ranks == 1 ? " rank, " : " ranks, ", micro_batches,
                   micro_batches == 1 ? " micro-batch" : " micro-batches", tied ? ", embedding and head tied" : "",
                   units.recompute ? ", blocks recomputed" : "",
                   units.frozen.empty() ? "" : message(", frozen ", units.frozen.front()),
                   units.replicated.empty() ? "" : message(", replicated ", units.replicated.front()),
                   units.blocks_per_unit == 1 ? "" : message(", ", units.blocks_per_unit, " blocks in a unit"));
  }
};

namespace detail {

/// A table of tokens, followed by units y = x + tanh(z), in which element k of a tensor w adds w[k] * x[from(k)] to
/// z[to(k)]. The loss is a twentieth of the squared distance from the targets. The head's weights are the table if both
/// are tied.
struct StrategyNet {
  static constexpr int blocks = 3, width = 13, inner = 17, tokens = 23, length = 2;
  using States = std::array<std::array<float, width>, length>;  // states of one unit, for each token

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

  /// Computes a piece of `length` tokens, and returns its contribution to the step's loss.
  static double compute(auto& pass, int piece, int pieces, bool trains) {
    const auto token = [&](std::size_t at) { return (5 * static_cast<int>(at) + 11 * piece) % tokens; };
    std::array<States, blocks + 2> states{};
    {
      const auto use = pass.forward(0);
      for (std::size_t at = 0; at < length; ++at)
        std::copy_n(use.weight(0).data() + token(at) * width, width, states[0][at].begin());
    }
    for (std::size_t unit = 1; unit < states.size(); ++unit) {
      const auto use = pass.forward(static_cast<int>(unit));
      for (std::size_t at = 0; at < length; ++at) {
        const auto& x = states[unit - 1][at];
        auto& y = states[unit][at];
        for (std::size_t i = 0; i < tensors(unit); ++i) {
          const Tensor<const float> w = use.weight(i);
          for (std::int64_t k = 0; k < w.numel(); ++k) y[to(k)] += w.data()[k] * x[from(k)];
        }
        for (std::size_t j = 0; j < width; ++j) y[j] = x[j] + std::tanh(y[j]);
      }
    }
    const float share = 0.1f / static_cast<float>(length * pieces);
    double loss = 0;
    States d = states.back();
    for (std::size_t at = 0; at < length; ++at)
      for (std::size_t j = 0; j < width; ++j) {
        const float off = d[at][j] - static_cast<float>((7 * static_cast<std::size_t>(token(at)) + j) % 5) + 2;
        d[at][j] = share * off;
        loss += 0.5 * static_cast<double>(share * off * off);
      }
    if (trains) backward(pass, token, states, d);
    return loss;
  }

 private:
  static std::size_t tensors(std::size_t unit) { return unit <= blocks ? 4 : 1; }
  static std::size_t from(std::int64_t k) { return static_cast<std::size_t>((k / width + k) % width); }
  static std::size_t to(std::int64_t k) { return static_cast<std::size_t>(k % width); }

  static void put(const auto& use, std::size_t tensor, const std::vector<float>& values) {
    const auto gradient = use.gradient(tensor);
    if (!gradient.wanted()) return;
    const bool adds = gradient.next() == Write::accumulate;
    float* const to = gradient.tensor.data();
    for (std::size_t i = 0; i < values.size(); ++i) to[i] = adds ? to[i] + values[i] : values[i];
  }

  /// `d`: the derivatives of the loss with respect to the last states.
  static void backward(auto& pass, auto token, const std::array<States, blocks + 2>& states, States d) {
    for (std::size_t unit = states.size(); unit-- > 1;) {
      const auto use = pass.backward(static_cast<int>(unit));
      States dz;
      for (std::size_t at = 0; at < length; ++at)
        for (std::size_t j = 0; j < width; ++j) {
          const float tanh = states[unit][at][j] - states[unit - 1][at][j];
          dz[at][j] = d[at][j] * (1 - tanh * tanh);
        }
      for (std::size_t i = 0; i < tensors(unit); ++i) {
        const Tensor<const float> w = use.weight(i);
        std::vector<float> gradient(static_cast<std::size_t>(w.numel()));
        for (std::size_t at = 0; at < length; ++at)
          for (std::int64_t k = 0; k < w.numel(); ++k) {
            gradient[static_cast<std::size_t>(k)] += dz[at][to(k)] * states[unit - 1][at][from(k)];
            d[at][from(k)] += w.data()[k] * dz[at][to(k)];
          }
        put(use, i, gradient);
      }
    }
    const auto use = pass.backward(0);
    std::vector<float> of_table(tokens * width);
    for (std::size_t at = 0; at < length; ++at)
      for (std::size_t j = 0; j < width; ++j) of_table[static_cast<std::size_t>(token(at) * width) + j] += d[at][j];
    put(use, 0, of_table);
  }
};

/// Sets the numbers of gathers and reductions of a schedule, and that none was recorded yet.
inline void count_tasks(const sharding::Schedule& schedule, RunResult& run) {
  run.gathers = std::ranges::count(schedule, sharding::Action::gather, &sharding::Task::action);
  run.reductions = std::ranges::count(schedule, sharding::Action::reduce, &sharding::Task::action);
  run.gathered = run.reduced = 0;
}
/// Adds the recorded collectives of one axis.
inline void count_collectives(const std::vector<comm::Record>& records, RunResult& run) {
  const auto what = [](const comm::Record& record) { return std::string_view(record.label.what); };
  run.gathered += std::ranges::count(records, "weights", what);
  run.reduced += std::ranges::count(records, "gradients", what);
}

}  // namespace detail

/// Trains for four steps, evaluates, and counts collectives. Rethrows the error of the first rank that failed.
template <class Strategy, class Optimizer>
RunResult train_loop(const Strategy& strategy, const StrategyCase& how, const Optimizer& optimizer, double lr) {
  using Net = detail::StrategyNet;
  ShardedSettings<Optimizer> settings;
  settings.micro_batches = how.micro_batches;
  settings.optimizer = optimizer;
  settings.unit_options = how.units;
  const auto train = [&](auto& sharded, int rank, RunResult& run) {
    const int first = rank * how.micro_batches, pieces = how.ranks * how.micro_batches;
    auto& module = sharded.module();
    std::vector<double> losses;
    for (int step = 0; step < 4; ++step) {
      for (auto* axis : module.communicators()) axis->monitor().records.clear();
      double loss = 0;
      auto pass = sharded.train();
      for (int m = 0; m < how.micro_batches; ++m) loss += Net::compute(pass, first + m, pieces, true);
      pass.finish();
      if (rank == 0) {
        detail::count_tasks(module.schedule(sharding::Pass::train), run);
        for (auto* axis : module.communicators()) detail::count_collectives(axis->monitor().records, run);
      }
      losses.push_back(sharded.step(loss, {.lr = lr}).loss);
    }
    auto pass = sharded.evaluate();
    Net::compute(pass, first, pieces, false);
    pass.finish();
    return losses;
  };
  return detail::run_sharded(
      how.ranks, [&] { return Net::units(how.tied); }, strategy, settings, train);
}

}  // namespace fsdp::testing
