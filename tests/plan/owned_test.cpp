// SPDX-License-Identifier: Apache-2.0
// Plans of ranks that own whole tensors, and so differ.
#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/comm/simulated.hpp>
#include <tessera/fsdp/buffer/owned.hpp>
#include <tessera/fsdp/execution/sharded_model.hpp>
#include <tessera/fsdp/models/llama.hpp>
#include <tessera/fsdp/training/muon.hpp>

#include <support/stacks/planned_llama.hpp>

namespace fsdp::plan {
namespace {

using Sharding = WithLayout<FullyShard<>, buffer::Owned>;
using Model = Llama<Stack<Sharding, comm::Simulated<>, Bf16Mixed, tiling::Untiled>>;
using Module = ShardedModel<Model>;

const LlamaConfig small = {.vocab_size = 320,
                           .hidden_size = 64,
                           .intermediate_size = 192,
                           .layers = 2,
                           .heads = 4,
                           .kv_heads = 1,
                           .head_dim = 16};

Plan plan_of(const UnitOptions& units, int ranks, int rank, std::int64_t length = 16,
             const optim::RunTimeOptimizer& optimizer = {}) {
  return test::dry_run({.config = small,
                        .units = units,
                        .strategy = RunTimeAny{.strategy = FullyShard<>{}, .other_layout = buffer::Owned{}},
                        .optimizer = optimizer},
                       {.ranks = ranks, .rank = rank, .shape = {.sequence_length = length}});
}

/// Some of the trained are few, all are many: which rank takes the most depends on both.
TEST(MostLoaded, IsTheRankWhosePeakIsTheLargest) {
  for (const UnitOptions& units : {UnitOptions{}, {.frozen = {"*embed*", "*down_proj*"}}})
    for (const int ranks : {1, 2, 3, 7}) {
      std::vector<std::int64_t> peaks;
      for (int rank = 0; rank < ranks; ++rank) peaks.push_back(plan_of(units, ranks, rank).peak_bytes());
      const Plan most = plan_of(units, ranks, most_loaded);
      EXPECT_EQ(most.peak_bytes(), *std::ranges::max_element(peaks)) << ranks << " ranks";
      EXPECT_EQ(most.peak_bytes(), peaks[static_cast<std::size_t>(most.rank)]);
      EXPECT_EQ(most.same_on_all_ranks, std::ranges::count(peaks, peaks.front()) == ranks);
    }
}

/// Muon's scratch follows the largest matrix that a rank steps, which need not be the rank that holds the most.
TEST(MostLoaded, IsFoundAmongRanksThatStepWholeMatricesToo) {
  for (const int ranks : {2, 5, 40}) {
    const auto peak_of = [&](int rank) { return plan_of({}, ranks, rank, 1, {optim::Muon{}}).peak_bytes(); };
    std::vector<std::int64_t> peaks;
    for (int rank = 0; rank < ranks; ++rank) peaks.push_back(peak_of(rank));
    EXPECT_EQ(peak_of(most_loaded), *std::ranges::max_element(peaks)) << ranks << " ranks";
  }
}

TEST(Muon, WeighsMatricesByNewtonSchulzAndTablesByTheirElements) {
  const Shape shape{64, 192};
  EXPECT_EQ(optim::Muon::work({.name = "w", .shape = shape, .role = nn::Role::matrix}),
            5 * 2 * 64 * 64 * (2 * 192 + 64));
  EXPECT_EQ(optim::Muon::work({.name = "w", .shape = shape, .role = nn::Role::table}), 64 * 192);
  EXPECT_EQ(
      optim::step_work(optim::RunTimeOptimizer{optim::Muon{}})({.name = "w", .shape = shape, .role = nn::Role::table}),
      64 * 192);
}

/// What an optimizer of whole matrices may cost: much for a matrix, nothing for a vector.
std::int64_t matrices_alone(const Parameter& parameter) {
  const Shape& shape = parameter.shape;
  return shape.rank == 2 ? shape[0] * shape[0] * shape[1] : 0;
}

TEST(Owned, PiecesAreWholeTensorsBalancedByTheWorkThatTheRunGives) {
  constexpr int ranks = 3;
  const auto work_of_ranks = [](StepWork step_work) {
    std::vector<std::int64_t> work;
    for (int rank = 0; rank < ranks; ++rank) {
      comm::Simulated<> communicator({.ranks = ranks, .rank = rank});
      const Module module(communicator, Model(small), Sharding{{}, {.slack = 2}},
                          {.sequence_length = 16, .step_work = step_work});
      work.push_back(0);
      for (const auto& piece : module.shards()) {
        EXPECT_EQ(piece.begin, 0);
        EXPECT_EQ(piece.main.numel(), piece.parameter->shape.numel());
        work.back() += matrices_alone(*piece.parameter);
      }
    }
    return work;
  };
  const auto largest = [](const std::vector<std::int64_t>& work) { return *std::ranges::max_element(work); };
  EXPECT_LT(largest(work_of_ranks(matrices_alone)), largest(work_of_ranks(elementwise_work)));
}

}  // namespace
}  // namespace fsdp::plan
