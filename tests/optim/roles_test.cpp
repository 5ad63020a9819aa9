// SPDX-License-Identifier: Apache-2.0
// Unusual parameters under each optimizer: no parameter decays, all are vectors, matrices have more than two axes.
#include <gtest/gtest.h>

#include <vector>

#include <tessera/fsdp/training/run_time_optimizer.hpp>

#include <support/errors.hpp>
#include <support/nets.hpp>

namespace fsdp::test {
namespace {

template <class Sharding>
Whole trained(int ranks, const std::vector<Unit>& units, const Sharding& strategy,
              const optim::RunTimeOptimizer& optimizer) {
  return of_first_rank(ranks, [&](Comm& communicator) {
    Initialized<Sharding> sharded(communicator, units, strategy, {.optimizer = optimizer});
    net::steps(sharded, {.uses = {0, 1, 2}}, 3);
    EXPECT_EQ(sharded.held().bytes, sharded.planned().bytes);
    return net::weights(sharded);
  });
}

const RunTimeAny fully_sharded{.strategy = FullyShard<>{}},
    owned{.strategy = FullyShard<>{}, .other_layout = buffer::Owned{}};

TEST(Decay, ExcludingAllParametersEqualsWeightDecayZero) {
  std::vector<Unit> units = net::units(3);
  for (Unit& unit : units)
    for (Parameter& parameter : unit.parameters) parameter.decays = false;
  const std::vector<Unit> all = net::units(3);
  const auto with = [](double decay) { return optim::RunTimeOptimizer{optim::AdamW{.weight_decay = decay}}; };
  EXPECT_EQ(trained(2, units, fully_sharded, with(0.5)), trained(2, all, fully_sharded, with(0)));
  EXPECT_NE(trained(2, units, fully_sharded, with(0.5)), trained(2, all, fully_sharded, with(0.5)));
  const auto sgd = [](double decay) { return optim::RunTimeOptimizer{optim::Sgd{.weight_decay = decay}}; };
  EXPECT_EQ(trained(2, units, Replicated{}, sgd(0.5)), trained(2, all, Replicated{}, sgd(0)));
}

/// Muon's second rule updates parameters that are not matrices.
TEST(Muon, OnVectorsOnlyEqualsAdamW) {
  std::vector<Unit> units = net::units(3);
  for (Unit& unit : units) {
    unit.parameters[0].shape = {net::width * net::width};
    for (Parameter& parameter : unit.parameters) parameter.role = Role::vector;
  }
  const optim::RunTimeOptimizer adamw{optim::AdamW{}}, muon{optim::Muon{}};
  for (const RunTimeAny& strategy : {owned, RunTimeAny{.strategy = Zero3{}, .other_layout = buffer::Owned{}}})
    EXPECT_EQ(trained(2, units, strategy, muon), trained(2, units, strategy, adamw)) << strategy.text();
  EXPECT_EQ(trained(2, units, Replicated{}, muon), trained(2, units, Replicated{}, adamw));
}

/// A parameter whose first extent is a matrix's rows, and whose others are its columns.
std::vector<Unit> with_shape(const Shape& shape) {
  std::vector<Unit> units = net::units(3);
  units[1].parameters[0].shape = shape;
  units[1].parameters[0].role = Role::matrix;
  units[1].parameters[0].decays = true;
  return units;
}

TEST(Muon, TensorsWithMoreAxesAreSteppedAsTheFlattenedMatrix) {
  const optim::RunTimeOptimizer muon{optim::Muon{}};
  const Whole flat = trained(2, with_shape({5, 5}), owned, muon);
  for (const Shape& shape : {Shape{5, 5, 1}, Shape{5, 1, 5}, Shape{5, 1, 5, 1}})
    EXPECT_EQ(trained(2, with_shape(shape), owned, muon), flat);
  EXPECT_EQ(trained(2, with_shape({5, 1, 5}), Replicated{}, muon), trained(2, with_shape({5, 5}), Replicated{}, muon));
}

/// A border in each group of tensors of two ranks, given by hand.
struct BorderAt {
  static constexpr std::string_view name = "border-at";
  std::int64_t border = 0;
  std::vector<buffer::Layout> build(std::span<const buffer::TensorGroup> groups, int) const {
    std::vector<buffer::Layout> layouts;
    for (const buffer::TensorGroup& group : groups) {
      std::vector<Shape> shapes;
      for (const buffer::TensorSpec& tensor : group.tensors) shapes.push_back(tensor.shape);
      buffer::Layout& layout = layouts.emplace_back(buffer::lay_out(shapes));
      buffer::cut_at(layout, std::vector<std::int64_t>{0, border, layout.full_size});
    }
    return layouts;
  }
};

TEST(Muon, PerHeadAcceptsAUsersLayoutUnlessItCutsAHead) {
  std::vector<Unit> units = net::units(3);
  for (Unit& unit : units) unit.parameters[0].block = net::width;  // a row
  const optim::RunTimeOptimizer muon{optim::Muon{.per_head = true}};
  const Whole expected = trained(2, units, Replicated{}, muon);
  const auto with_border = [&](std::int64_t border) {
    return trained(2, units, WithLayout<FullyShard<>, BorderAt>{{}, {border}}, muon);
  };
  for (const std::int64_t border : {std::int64_t{0}, net::width, 3 * net::width, net::width * net::width})
    EXPECT_EQ(with_border(border), expected) << border;
  EXPECT_INPUT_ERROR(with_border(net::width + 1),
                     "the optimizer muon works on blocks of 5 elements, and the strategy cuts inside of one of \"");
  EXPECT_NE(trained(2, units, Replicated{}, {optim::Muon{}}), expected);
}

/// These tensors do not have rows and columns.
TEST(Muon, VectorsAndEmptyTensorsWithMatrixRoleUseAdamW) {
  for (const Shape& shape : {Shape{25}, Shape{0, 8}}) {
    std::vector<Unit> units = with_shape(shape);
    if (shape.numel() == 0) units[1].parameters.pop_back();
    const Whole found = trained(2, units, owned, {optim::Muon{}});
    units[1].parameters[0].role = Role::vector;
    EXPECT_EQ(trained(2, units, owned, {optim::Muon{}}), found);
  }
}

}  // namespace
}  // namespace fsdp::test
