// SPDX-License-Identifier: Apache-2.0
// Random orders: several losses over shared units, uses without a backward, and weight gradients that are computed
// later than input gradients. The gradients equal those of a loop over unsharded tensors.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <support/nets.hpp>
#include <tessera/fsdp/module/host_weights.hpp>
#include <tessera/fsdp/testing/report.hpp>

namespace fsdp::test {
namespace {

using sharding::Action;

/// Random numbers from 0 to `below` - 1.
class Draw {
 public:
  explicit Draw(unsigned seed) : engine_(seed) {}
  int operator()(int below) { return static_cast<int>(engine_() % static_cast<unsigned>(below)); }

 private:
  std::minstd_rand engine_;
};

/// A use of a unit in forward. Its input is the output of an earlier node, or the batch (-1).
struct Node {
  int unit = 0, input = -1;
  bool stops = false;  ///< no gradient flows through it
  int sweep = -1;      ///< the sweep that starts from a loss on its output; -1 if it has no loss
};

/// One entry of an order. A backward makes the gradient of the node's input, those of its weights, or both.
struct Entry {
  Action action = Action::forward;
  int node = 0, sweep = -1;
  bool input = true, weights = true;
};

/// The computations of a micro-batch. Each sweep runs backward from its losses through all nodes that they depend on.
struct Program {
  int units = 0;
  std::vector<Node> nodes;
  std::vector<Entry> list;

  const Node& node_of(const Entry& entry) const { return nodes[static_cast<std::size_t>(entry.node)]; }
  Order order() const {
    Order order;
    for (const Entry& entry : list) order.list.push_back({entry.action, node_of(entry).unit});
    return order;
  }
  bool trains(int unit) const {
    return std::ranges::any_of(
        list, [&](const Entry& entry) { return entry.action != Action::forward && node_of(entry).unit == unit; });
  }
};

/// Appends the backward of a sweep. `late` collects weight gradients that are computed later.
void append_sweep(Program& program, int sweep, std::vector<Entry>& late, Draw& draw) {
  std::vector<bool> reached(program.nodes.size());
  for (std::size_t i = program.nodes.size(); i-- > 0;) {
    const Node& node = program.nodes[i];
    if ((!reached[i] && node.sweep != sweep) || node.stops) continue;
    Entry entry{.action = Action::backward, .node = static_cast<int>(i), .sweep = sweep};
    const bool made = std::ranges::any_of(
        program.list, [&](const Entry& one) { return one.action == Action::loss && one.node == entry.node; });
    if (!made || node.sweep != sweep) {
      if (draw(3) == 0) {
        entry.weights = false;
        late.push_back({.action = Action::backward, .node = entry.node, .sweep = sweep, .input = false});
      }
      program.list.push_back(entry);
    }
    if (node.input >= 0) reached[static_cast<std::size_t>(node.input)] = true;
    for (; !late.empty() && draw(3) == 0; late.pop_back()) {
      std::swap(late[static_cast<std::size_t>(draw(static_cast<int>(late.size())))], late.back());
      program.list.push_back(late.back());
    }
  }
}

Program random_program(Draw& draw) {
  Program program{.units = 2 + draw(4), .nodes = {}, .list = {}};
  const int count = program.units + draw(program.units + 1), sweeps = 1 + draw(3);
  for (int i = 0; i < count; ++i)
    program.nodes.push_back(
        {.unit = draw(program.units), .input = draw(4) == 0 ? draw(i + 1) - 1 : i - 1, .stops = draw(5) == 0});
  for (int sweep = 0; sweep < sweeps; ++sweep)
    for (int losses = 1 + draw(2); losses > 0; --losses)
      program.nodes[static_cast<std::size_t>(draw(count))].sweep = sweep;
  std::vector<bool> gone_back(static_cast<std::size_t>(sweeps));
  std::vector<Entry> late;
  for (int i = 0; i < count; ++i) {
    const Node& node = program.nodes[static_cast<std::size_t>(i)];
    const bool alone =
        std::ranges::count_if(program.nodes, [&](const Node& other) { return other.sweep == node.sweep; }) == 1;
    const bool at_once = node.sweep >= 0 && alone && !node.stops && draw(2) == 0;
    program.list.push_back({.action = at_once ? Action::loss : Action::forward, .node = i, .sweep = node.sweep});
    for (int sweep = 0; sweep < sweeps; ++sweep) {
      const bool complete = std::none_of(program.nodes.begin() + i + 1, program.nodes.end(),
                                         [&](const Node& later) { return later.sweep == sweep; });
      if (gone_back[static_cast<std::size_t>(sweep)] || !complete || (i + 1 < count && draw(2) == 0)) continue;
      append_sweep(program, sweep, late, draw);
      gone_back[static_cast<std::size_t>(sweep)] = true;
    }
  }
  program.list.insert(program.list.end(), late.rbegin(), late.rend());
  return program;
}

/// Runs the computations of a micro-batch on the tensors that `enter(action, unit)` returns. Returns the loss.
template <class Enter>
double compute(const Program& program, const net::Place& place, bool trains, const Enter& enter) {
  const net::Values batch = net::inputs(place), targets = net::targets(place);
  std::vector<net::Values> out(program.nodes.size());
  std::map<std::pair<int, int>, net::Values> gradients;  // gradients of the outputs, by sweep and node
  const auto add = [&](int sweep, int node, const net::Values& gradient) {
    net::Values& sum = gradients[{sweep, node}];
    if (sum.empty()) sum.resize(gradient.size());
    std::ranges::transform(sum, gradient, sum.begin(), std::plus());
  };
  double loss = 0;
  for (const Entry& entry : program.list) {
    if (entry.action == Action::backward && !trains) continue;
    const Node& node = program.node_of(entry);
    const net::Values& x = node.input < 0 ? batch : out[static_cast<std::size_t>(node.input)];
    const auto use = enter(entry.action, node.unit);
    if (entry.action != Action::backward) {
      net::Values& y = out[static_cast<std::size_t>(entry.node)] = net::forward_of(use, 2, x);
      if (node.sweep >= 0) {
        net::Values gradient = y;
        loss += net::error(gradient, targets);
        add(node.sweep, entry.node, gradient);
      }
    }
    if (entry.action == Action::forward || !trains) continue;
    using View = decltype(use.gradient(0));
    const net::Values dx =
        net::backward(use.weight(0), entry.weights ? use.gradient(0) : View(), entry.weights ? use.gradient(1) : View(),
                      x, gradients.at({entry.sweep, entry.node}));
    if (entry.input && node.input >= 0) add(entry.sweep, node.input, dx);
  }
  return loss;
}

/// Unsharded tensors whose gradients are summed over ranks and micro-batches.
struct Plain {
  std::map<std::string, net::Values> weights, gradients;
  std::map<std::string, bool> written = {};

  struct Use {
    Plain& plain;
    std::string unit;

    std::string name(int index) const { return unit + (index == 0 ? ".w" : ".b"); }
    Tensor<const float> weight(int index) const {
      const net::Values& values = plain.weights.at(name(index));
      return {values.data(), {std::ssize(values)}};
    }
    GradientView<float> gradient(int index) const {
      net::Values& values = plain.gradients[name(index)];
      values.resize(plain.weights.at(name(index)).size());
      return {Tensor<float>(values.data(), {std::ssize(values)}), &plain.written[name(index)]};
    }
  };
  double run(const Program& program, const net::Place& place, bool trains) {
    return compute(program, place, trains, [&](Action, int unit) { return Use{*this, "unit" + std::to_string(unit)}; });
  }
};

void expect_gradients_and_evaluation(const Program& program, const RunTimeAny& strategy, int ranks, int micro_batches) {
  std::vector<std::string> frozen;
  for (int unit = 0; unit < program.units; ++unit)
    if (!program.trains(unit)) frozen.push_back(message("unit", unit, ".*"));
  on_ranks(ranks, [&](Comm& communicator) {
    Initialized<RunTimeAny> sharded(
        communicator, net::units(program.units), strategy,
        {.orders = {program.order()}, .micro_batches = micro_batches, .unit_options = {.frozen = frozen}});
    const auto run = [&](auto& pass, const net::Place& place, bool trains) {
      return compute(program, place, trains, [&](Action action, int unit) {
        auto use = pass.enter();
        EXPECT_EQ(use.task().action, action);
        EXPECT_EQ(use.task().index, unit);
        return use;
      });
    };
    Plain plain{.weights = net::weights(sharded), .gradients = {}};
    double own = 0, whole = 0;
    auto pass = sharded.train();
    for (int m = 0; m < micro_batches; ++m) own += run(pass, {.rank = communicator.rank(), .micro_batch = m}, true);
    pass.finish();
    for (int rank = 0; rank < ranks; ++rank)
      for (int m = 0; m < micro_batches; ++m) whole += plain.run(program, {.rank = rank, .micro_batch = m}, true);

    std::size_t compared = 0;
    with_full_gradients(sharded.module(), {"*"}, [&](const Parameter& parameter, Tensor<const float> found) {
      testing::expect_near("gradients are those of a loop over whole tensors", "this trial", parameter.name,
                           net::Values(found.data(), found.data() + found.numel()), plain.gradients.at(parameter.name));
      ++compared;
    });
    EXPECT_EQ(compared, plain.gradients.size());
    EXPECT_NEAR(sharded.step(own, {.lr = 1e-2}).loss, whole, 1e-6 * whole);
    EXPECT_EQ(sharded.held().bytes, sharded.planned().bytes);

    plain.weights = net::weights(sharded);
    const net::Place place{.rank = communicator.rank(), .step = 1};
    auto evaluation = sharded.evaluate();
    EXPECT_EQ(run(evaluation, place, false), plain.run(program, place, false));
    evaluation.finish();
  });
}

TEST(RandomOrders, MatchTheGradientsOfALoopOverWholeTensors) {
  Draw draw(1);
  std::array<int, 3> programs{};  // number of programs with late weight gradients, with several sweeps, with forward,
                                  // loss and backward in one computation
  for (int trial = 0; trial < 60; ++trial) {
    Program program = random_program(draw);
    while (std::ranges::all_of(program.list, [](const Entry& one) { return one.action == Action::forward; }))
      program = random_program(draw);
    RunTimeAny strategy = sharded_strategies()[static_cast<std::size_t>(trial % 5)];
    if (trial % 5 == 0) strategy = {.strategy = FullyShard<>{.prefetch_depth = trial % 4}};
    SCOPED_TRACE(message("trial ", trial, ", ", policy_text(strategy)));
    expect_gradients_and_evaluation(program, strategy, 1 + trial % 3, 1 + draw(3));
    if (::testing::Test::HasFailure()) return;
    const auto has = [&](auto holds) { return std::ranges::any_of(program.list, holds) ? 1 : 0; };
    programs[0] += has([](const Entry& one) { return !one.input; });
    programs[1] += has([](const Entry& one) { return one.action == Action::backward && one.sweep > 0; });
    programs[2] += has([](const Entry& one) { return one.action == Action::loss; });
  }
  for (const int count : programs) EXPECT_GT(count, 12);
}

}  // namespace
}  // namespace fsdp::test
