// SPDX-License-Identifier: Apache-2.0
// User-defined networks are bit-identical on any number of ranks if a step is cut into pieces.
#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include <support/errors.hpp>
#include "runs.hpp"

namespace fsdp::foreign {
namespace {

template <class Strategy>
AnyStrategy in_pieces(const Strategy& strategy, int pieces) {
  return RunTimeAny{Reproducible<Strategy>{strategy, pieces}};
}

std::vector<AnyStrategy> family(const Network& network, int pieces) {
  const bool tied = network.name == "tied";
  RunTimeAny parts{Reproducible<Zero2>{{}, pieces}};
  parts.units = {
      part_of(on(tied ? "table" : "*.weight", RunTimeAny{.strategy = Zero3{}, .other_layout = buffer::Owned{}})),
      part_of(on(tied ? "cell.*" : "head.bias", RunTimeAny{Zero1{}}))};
  return {parts,
          in_pieces(FullyShard<>{}, pieces),
          in_pieces(FullyShard<ReshardAfterForward::no>{.prefetch_depth = 2}, pieces),
          in_pieces(Zero1{}, pieces),
          in_pieces(Zero2{}, pieces),
          in_pieces(Zero3{.persistence_threshold = 8}, pieces)};
}

/// Numbers of ranks that divide the number of pieces, that do not, and that exceed it.
std::vector<int> rank_counts(int pieces) { return {1, 2, 3, pieces, pieces + 1}; }

std::string trace(const Network& network, const Request& request) {
  return message(network.name, ", ", text_of(request.strategy), ", ", request.ranks, " ranks");
}

void expect_same_on_any_ranks(const Network& network, Request request, int pieces, const Outcome& expected) {
  for (const int ranks : rank_counts(pieces))
    for (const AnyStrategy& strategy : family(network, pieces)) {
      request.ranks = ranks;
      request.strategy = strategy;
      SCOPED_TRACE(trace(network, request));
      expect_same(train_sharded(network, request), expected);
    }
}

/// The owner of a shard adds pieces in the same order as the plain loop with one rank for each piece.
TEST(SameBits, MatchAPlainLoopThatAddsPiecesInOrder) {
  for (const Network& network : networks())
    for (const int pieces : {4, 5}) {
      const Request request{.ranks = pieces, .clip = 1e30};  // never reached, since the order of sums differs
      const Outcome expected = train_plain<float>(network, request, plain::Reduce::every_micro_batch);
      expect_same_on_any_ranks(network, request, pieces, expected);
    }
}

TEST(SameBits, OfAPerUnitMatchAPlainLoop) {
  const Network network = unet_network();
  Request request{.ranks = 4, .clip = 1e30};
  const Outcome expected = train_plain<float>(network, request, plain::Reduce::every_micro_batch);
  using Strategy = PerUnit<Zero1, Zero3>;
  for (request.ranks = 1; request.ranks <= 4; ++request.ranks)
    on_ranks(request.ranks, [&](Comm& communicator) {
      const Reproducible<Strategy> strategy{Strategy{on("enc1", Zero1{}), otherwise(Zero3{})}, 4};
      expect_same(train_on<Fp32>(communicator, network, request, strategy), expected);
    });
}

/// Clipping uses exact norms.
TEST(SameBits, IncludeNormsAndClippedSteps) {
  for (const Network& network : networks()) {
    constexpr int pieces = 5;
    Request request{.ranks = pieces};
    request.clip = clip_of(network, request);
    request.strategy = in_pieces(FullyShard<>{}, pieces);
    const Outcome expected = train_sharded(network, request);
    expect_clipping(expected, request.clip);
    EXPECT_LT(difference(expected, train_plain<float>(network, request, plain::Reduce::every_micro_batch)), 1e-5);
    for (const int ranks : rank_counts(pieces)) {
      request.ranks = ranks;
      SCOPED_TRACE(trace(network, request));
      const Outcome found = train_sharded(network, request);
      expect_same(found, expected);
      EXPECT_EQ(found.norms, expected.norms);
    }
  }
}

/// Values that would be sent are rounded to bf16 on one rank too.
TEST(SameBits, AreGuaranteedInBf16Too) {
  for (const Network& network : networks()) {
    constexpr int pieces = 4;
    const Request request{.ranks = 4, .strategy = in_pieces(FullyShard<>{}, pieces), .precision = In::bf16};
    const Outcome expected = train_sharded(network, request);
    expect_same_on_any_ranks(network, request, pieces, expected);
  }
}

TEST(SameBits, ResultsDependOnTheNumberOfRanksWithoutPieces) {
  for (const Network& network : networks()) {
    Request request{.ranks = 1, .micro_batches = std::vector(4, 4), .strategy = RunTimeAny{FullyShard<>{}}};
    const Outcome alone = train_sharded(network, request);
    request.ranks = 2;
    request.micro_batches = std::vector(4, 2);
    EXPECT_NE(train_sharded(network, request).weights, alone.weights) << network.name;
  }
}

using Pieces = ShardedBy<Reproducible<FullyShard<>>>;

/// Calls f(sharded) on two ranks that have three pieces.
template <class F>
void on_two_ranks(F f) {
  const Network network = unet_network();
  on_ranks(2, [&](Comm& communicator) {
    Pieces sharded(communicator, network.units, {{}, 3}, settings_for(network, 1));
    sharded.initialize(seed);
    f(sharded, network);
  });
}

TEST(SameBits, ARankWithoutAPieceMustSkipTheMicroBatch) {
  on_two_ranks([](Pieces& sharded, const Network& network) {
    const auto& module = sharded.module();
    EXPECT_EQ(module.step_pieces(), 3);
    EXPECT_EQ(module.settings().passes.micro_batches, 2);
    auto pass = sharded.train();
    AnyPass any = any_pass(pass);
    EXPECT_THROW(pass.skip(), LogicError) << "it has a piece";
    network.compute(any, 0, *module.step_piece(0), 3);
    if (module.communicator().rank() == 1) {
      EXPECT_EQ(module.step_piece(1), std::nullopt);
      const auto next = pass.next();
      EXPECT_THROW(pass.forward(next->index), LogicError) << "it has none";
      pass.skip();
    } else {
      network.compute(any, 0, *module.step_piece(1), 3);
    }
    pass.finish();
    const std::vector<double> losses(module.communicator().rank() == 1 ? 1 : 2, 0.5);
    EXPECT_THROW(sharded.step(std::vector(3, 0.5), {}), LogicError) << "a loss for each piece is needed";
    EXPECT_EQ(sharded.step(losses, {.lr = lr}).loss, 1.5);
  });
}

/// Adding +0 would change the sum of gradients that are all -0.
TEST(SameBits, ARankWithoutAPieceAddsNothingToTheSum) {
  const std::vector<Unit> units{{.name = "u", .parameters = {{.name = "w", .shape = {5}}}}};
  on_ranks(2, [&](Comm& communicator) {
    Pieces sharded(communicator, units, {{}, 3});
    sharded.initialize(seed);
    auto pass = sharded.train();
    for (int m = 0; m < 2; ++m) {
      if (!sharded.module().step_piece(m)) {
        pass.skip();
        continue;
      }
      { const auto use = pass.forward(0); }
      const auto use = pass.backward(0);
      const auto gradient = use.gradient(0);
      EXPECT_EQ(gradient.next(), Write::overwrite);
      std::fill_n(gradient.tensor.data(), gradient.tensor.numel(), -0.0f);
    }
    pass.finish();
    for (const auto& piece : sharded.shards())
      for (std::int64_t i = 0; i < piece.gradient.numel(); ++i)
        EXPECT_TRUE(piece.gradient[i] == 0 && std::signbit(piece.gradient[i])) << "element " << piece.begin + i;
  });
}

TEST(SameBits, ARankMayForfeitAPassBetweenItsPieces) {
  on_two_ranks([](Pieces& sharded, const Network& network) {
    const auto& module = sharded.module();
    const bool gives_up = module.communicator().rank() == 0;
    {
      auto pass = sharded.train();
      AnyPass any = any_pass(pass);
      std::vector<double> losses{network.compute(any, 0, *module.step_piece(0), 3)};
      if (gives_up)
        pass.forfeit();
      else
        pass.skip(), pass.finish();
      EXPECT_EQ(sharded.step(losses, {.lr = lr}).forfeited, 0);
    }
    EXPECT_EQ(steps_in_pieces(sharded, network, 1).losses.size(), 1u);
  });
}

std::string refusal(const AnyStrategy& strategy, ShardedSettings<> settings) {
  const Network network = unet_network();
  settings.orders = {network.order};
  return test::error_of<InputError>([&] {
    on_ranks(2, [&](Comm& communicator) {
      std::visit([&]<class S>(const S& held) { ShardedBy<S>(communicator, network.units, held, settings); }, strategy);
    });
  });
}

TEST(SameBits, SettingsThatDependOnTheNumberOfRanksAreRefused) {
  const AnyStrategy strategy = in_pieces(FullyShard<>{}, 4);
  EXPECT_EQ(refusal(strategy, {}), "");
  test::expect_parts(refusal(strategy, {.micro_batches = 3}), {"has 2 micro-batches, and 3 are planned"});
  test::expect_parts(refusal(strategy, {.unit_options = {.replicated = {"*"}}}), {"whole on every rank"});
  test::expect_parts(refusal(strategy, {.statistics = {{.name = "mean", .shape = {3}}}}), {"statistics"});
  test::expect_parts(refusal(in_pieces(FullyShard<>{}, -1), {}), {"-1 pieces"});
  for (const RunTimeAny& part : {RunTimeAny{Replicated{}}, RunTimeAny{HybridShard<RunTimeSharded>{.group = 2}}}) {
    RunTimeAny parts{Reproducible<Zero2>{{}, 4}};
    parts.units = {part_of(on("head", part))};
    EXPECT_NE(refusal(parts, {}).find("so that the sum would depend on the ranks"), std::string::npos);
  }
  const HybridShard<RunTimeSharded> hybrid{.group = 2, .inner = {Reproducible<Zero2>{{}, 4}}};
  test::expect_parts(refusal(RunTimeAny{hybrid}, {}), {"adds up the gradients of each group"});
}

}  // namespace
}  // namespace fsdp::foreign
