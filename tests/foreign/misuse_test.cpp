// SPDX-License-Identifier: Apache-2.0
// Misuse throws one clear error on every rank without a deadlock; after a refused call, a pass continues with
// bit-identical results.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include <support/errors.hpp>
#include <tessera/fsdp/core/checked.hpp>

#include "runs.hpp"

namespace fsdp::foreign {
namespace {

constexpr int ranks = 2;
constexpr int dec1 = 0, enc1 = 1, head = 2, enc2 = 3, dec2 = 4, middle = 5;  // units of the U-Net

/// Calls f(), which must throw an E whose text contains `part`.
template <class E, class F>
void expect_error(std::string_view part, F f) {
  test::expect_parts(test::error_of<E>(f), {part});
}

/// What one rank passes to a Sharded.
struct Call {
  int rank;
  std::vector<Unit> units;
  Fsdp2::Settings settings;
};

/// Expects that constructing a Sharded with the modified arguments throws the error on every rank, without a deadlock.
void expect_refused(std::string_view part, void (*change)(Call&)) {
  std::array<bool, ranks> refused{};
  on_ranks(ranks, [&](Comm& communicator) {
    const Network network = unet_network();
    Call call{communicator.rank(), network.units, settings_for(network, 1)};
    expect_error<InputError>(part, [&] {
      change(call);
      Fsdp2(communicator, call.units, {}, call.settings);
    });
    refused[static_cast<std::size_t>(communicator.rank())] = true;
  });
  EXPECT_EQ(refused, (std::array<bool, ranks>{true, true}));
}

TEST(Misuse, InvalidUnitsAndOrdersAreRefusedOnEveryRank) {
  expect_refused("nothing makes a gradient of enc2, which is to be trained", [](Call& call) {
    call.settings.orders = {mirrored({enc1, middle, dec2, dec1}, head)};
  });
  expect_refused("rank 1 has another schedule than rank 0", [](Call& call) {
    if (call.rank == 1) std::swap(call.settings.orders[0].list[0], call.settings.orders[0].list[1]);
  });
  expect_refused("rank 1 has another schedule than rank 0",
                 [](Call& call) { call.settings.micro_batches = 1 + call.rank; });
  expect_refused("and what is frozen, replicated, merged or float (UnitOptions) must be the same", [](Call& call) {
    if (call.rank == 1) call.settings.unit_options.frozen = {"middle.*"};
  });
  expect_refused("rank 1 has another schedule than rank 0", [](Call& call) {  // with groups of the same shapes
    call.settings.unit_options.frozen = {call.rank == 1 ? "middle.beta" : "middle.gamma"};
  });
  expect_refused("rank 1 has other units than rank 0: rank 0 has 'middle: middle.gamma [", [](Call& call) {
    if (call.rank == 1) call.units[middle].parameters[1].name = "another";
  });
  expect_refused("rank 1 has 'head: head.bias [1], initially zeros 0, vector, decays'", [](Call& call) {
    if (call.rank == 1) call.units[head].parameters[1].decays = true;
  });
  expect_refused("middle.gamma",
                 [](Call& call) { call.units[enc1].parameters.push_back({.name = "middle.gamma", .shape = {3}}); });
  expect_refused("5 extents are given, and a shape holds 4", [](Call& call) {
    call.units[enc1].parameters[0].shape = {1, 2, 3, 4, 5};
  });
  expect_refused("unit 17 is named, and there are 6", [](Call& call) { call.settings.orders[0].list[2].unit = 17; });
  expect_refused("middle is named, and it is declared as never gathered",
                 [](Call& call) { call.units[middle].gathered = false; });
  expect_refused("'gather' is no computation",
                 [](Call& call) { call.settings.orders[0].list[2].action = sharding::Action::gather; });
  expect_refused("it names no computation", [](Call& call) { call.settings.orders[0] = {}; });
  expect_refused("0 micro-batches make no step", [](Call& call) { call.settings.micro_batches = 0; });
  expect_refused("computations each; a step has at most 1048576 computations, so that at most ",
                 [](Call& call) { call.settings.micro_batches = 1 << 20; });
  expect_refused("middle lists field 99 as absent", [](Call& call) { call.units[middle].absent = {99}; });
  expect_refused("frozen pattern 'encoder.*' matches no parameter",
                 [](Call& call) { call.settings.unit_options.frozen = {"encoder.*"}; });
}

TEST(Misuse, InvalidSettingsAreRefusedOnEveryRank) {
  expect_refused("rank 0 has 'clip = 0.25', rank 1 has 'clip = 0.5'",
                 [](Call& call) { call.settings.rules.clip = call.rank == 1 ? 0.5 : 0.25; });
  expect_refused("rank 0 has 'beta1 = 0.9', rank 1 has 'beta1 = 0.8'",
                 [](Call& call) { call.settings.optimizer.beta1 = call.rank == 1 ? 0.8 : 0.9; });
  expect_refused("the clip is nan", [](Call& call) { call.settings.rules.clip = NAN; });
  expect_refused("the clip is -1", [](Call& call) { call.settings.rules.clip = -1; });
  expect_refused("beta1", [](Call& call) { call.settings.optimizer.beta1 = NAN; });
  expect_refused("rank 0 has 'statistic mean = [3], mean", [](Call& call) {
    call.settings.statistics = {{"mean", Shape{call.rank == 1 ? 40000000 : 3}}};
  });
  expect_refused("rank 0 has 'statistic mean = [3], mean", [](Call& call) {
    call.settings.statistics = {{"mean", {3}}, {"count", {3}}};
    if (call.rank == 1) std::swap(call.settings.statistics[0], call.settings.statistics[1]);
  });
  expect_refused("ranks have other settings", [](Call& call) {
    if (call.rank == 1) call.settings.statistics = {{"mean", {3}}};
  });
  expect_refused("statistic 'mean' has extent -3", [](Call& call) { call.settings.statistics = {{"mean", {-3}}}; });
}

TEST(Misuse, InvalidShapesAndUnitsAreRefusedOnEveryRank) {
  expect_refused("has more than 2^56 elements", [](Call& call) {
    call.units[enc1].parameters[0].shape = {std::int64_t{1} << 32, std::int64_t{1} << 32};
  });
  expect_refused("has more than 2^56 elements", [](Call& call) {
    call.units[enc1].parameters[0].shape = {(std::int64_t{1} << 62) + 2, 4};
  });
  expect_refused("no control characters; found", [](Call& call) { call.units[enc1].parameters[0].name = "a\nb"; });
  expect_refused("must have 1 to 512 bytes",
                 [](Call& call) { call.units[enc1].parameters[0].name = std::string(5000, 'x'); });
  expect_refused("no tensor can be called", [](Call& call) { call.units[enc1].parameters[0].name = "__metadata__"; });
  expect_refused("is twice in ",
                 [](Call& call) { call.units[enc1].parameters.push_back(call.units[enc1].parameters[0]); });
}

TEST(Misuse, AccessToWeightsDuringAPassIsRefused) {
  on_ranks(ranks, [&](Comm& communicator) {
    const Network network = unet_network();
    Fsdp2 sharded(communicator, network.units, {}, settings_for(network, 1));
    sharded.initialize(1);
    auto pass = sharded.train();
    const auto expect = [](auto call) { EXPECT_THROW(call(), LogicError); };
    expect([&] { sharded.initialize(2); });
    expect([&] { sharded.fill([](const Parameter&, std::int64_t, std::span<float>) {}); });
    expect([&] { sharded.set(network.units[0].parameters[0].name, {}); });
    pass.forfeit();
    sharded.step(0, {.lr = 0});
    sharded.initialize(2);
  });
}

TEST(Misuse, ATooSmallBudgetOnOneRankIsRefusedOnEveryRank) {
  std::array<std::string, ranks> texts;
  on_ranks(ranks, [&](Comm& communicator) {
    const Network network = unet_network();
    Fsdp2::Settings settings = settings_for(network, 1);
    const PlannedBytes planned = Fsdp2::plan(ranks, communicator.rank(), network.units, {}, settings);
    settings.budget = planned.sum();
    Fsdp2(communicator, network.units, {}, settings);  // just enough
    settings.budget -= communicator.rank();            // the budget of rank 0 suffices
    texts[static_cast<std::size_t>(communicator.rank())] =
        test::error_of<MemoryError>([&] { Fsdp2(communicator, network.units, {}, settings); });
  });
  for (const std::string& text : texts) test::expect_parts(text, {"rank 1 would hold "});
}

TEST(Misuse, APlanForNoRanksIsRefusedAlsoInPieces) {
  using InPieces = Sharded<Stack<Reproducible<FullyShard<>>, Comm, Fp32>>;
  const Network network = unet_network();
  expect_error<InputError>("rank 0 of 0", [&] { (void)InPieces::plan(0, 0, network.units, {{}, 4}); });
}

TEST(Misuse, MisuseOfAPassReportsTheNextTaskAndChangesNothing) {
  const Network network = unet_network();
  const Outcome expected = train_sharded(network, {.ranks = ranks, .micro_batches = {1, 1}});
  Outcome found;
  on_ranks(ranks, [&](Comm& communicator) {
    Fsdp2 sharded(communicator, network.units, {}, settings_for(network, 1));
    const auto expect_without = [&](const std::string& name) {
      expect_error<LogicError>("pass: " + name + " and others have no values yet; initialize, load or set them first",
                               [&] { (void)sharded.train(); });
    };
    const std::string first = network.units.front().parameters[0].name,
                      second = network.units.front().parameters[1].name;
    const std::vector<float> zeros(static_cast<std::size_t>(network.units.front().parameters[0].shape.numel()));
    expect_without(first);
    sharded.set(first, zeros);
    expect_without(second);
    sharded.initialize(seed);
    expect_error<LogicError>("no training pass was finished since the last one", [&] { sharded.step(0, {.lr = lr}); });
    expect_error<LogicError>("7 micro-batches given to a module planned for 1", [&] { (void)sharded.train(7); });
    expect_error<LogicError>("order 1 is asked for, and there are 1", [&] { (void)sharded.train(1, 1); });

    std::vector<double> losses;
    for (const int step : {0, 1}) {
      auto pass = sharded.train();
      AnyPass any = any_pass(pass);
      int count = 0;
      any.before = [&] {
        const std::string next = count < 6 ? "the next computation is " : "the next computation is backward ";
        expect_error<LogicError>(next, [&] { (void)pass.forward(head); });
        expect_error<LogicError>(
            count == 0 ? "the next computation is forward enc1 of micro-batch 0, not backward middle" : next,
            [&] { (void)pass.backward(count == 0 ? middle : head); });
        for (const int none : {-1, 99})
          expect_error<LogicError>("not both unit " + std::to_string(none), [&] { (void)pass.both(none); });
        expect_error<LogicError>("finished before", [&] { pass.finish(); });
        ++count;
      };
      any.inside = [&] {
        const std::string alive = " inside of a use, that of " + (count == 1 ? "forward enc1; " : std::string());
        expect_error<LogicError>("pass: both head" + alive, [&] { (void)pass.both(head); });
        expect_error<LogicError>("pass: finish" + alive, [&] { pass.finish(); });
        expect_error<LogicError>("pass: skip" + alive, [&] { pass.skip(); });
        expect_error<LogicError>("pass: poll" + alive, [&] { pass.poll(); });
      };
      const double loss = network.compute(any, step, communicator.rank(), ranks);
      expect_error<LogicError>("nothing is left to compute", [&] { (void)pass.enter(); });
      pass.finish();
      expect_error<LogicError>("it is over; begin another one", [&] { pass.finish(); });
      expect_error<LogicError>("it is over; begin another one", [&] { pass.forfeit(); });

      expect_error<InputError>("the learning rate is nan", [&] { sharded.step(loss, {.lr = std::nan("")}); });
      expect_error<InputError>("the learning rate is 1e+39", [&] { sharded.step(loss, {.lr = 1e39}); });
      expect_error<InputError>("StepInputs::lr must be given", [&] { sharded.step(loss, {}); });
      expect_error<InputError>("the loss scale 0", [&] { sharded.step(loss, {.lr = lr, .loss_scale = 0}); });
      losses.push_back(sharded.step(loss, {.lr = lr_of(step)}).loss);
      expect_error<LogicError>("no training pass was finished since the last one", [&] { sharded.step(0, {}); });
    }
    const auto weights = whole_weights(sharded);
    if (communicator.rank() == 0) found = {losses, weights};
  });
  expect_same(found, expected);
}

TEST(Misuse, MisuseOfAUseReportsItsUnit) {
  Network network = unet_network();
  network.units[enc2].backward_needs_weights = false;
  on_ranks(ranks, [&](Comm& communicator) {
    Fsdp2 sharded(communicator, network.units, {}, settings_for(network, 1));
    sharded.initialize(seed);
    {
      auto pass = sharded.train();
      auto use = pass.forward(enc1);
      expect_error<LogicError>("forward enc1 makes no gradient", [&] { (void)use.gradient(0); });
      expect_error<LogicError>("tensor 3 is asked for, and enc1 has 3, counted from 0", [&] { (void)use.weight(3); });
      expect_error<LogicError>("enc1 has no tensor 'middle.gamma'; known: enc1.weight, ",
                               [&] { (void)use.weight("middle.gamma"); });
      EXPECT_EQ(use.weight("enc1.gamma").data(), use.weight(1).data());
      use.done();
      expect_error<LogicError>("a weight is asked for after the end of the use", [&] { (void)use.weight(0); });
      expect_error<LogicError>("after the end of the use", [&] { (void)use.gradient("enc1.gamma"); });
      while (const auto next = pass.next()) {
        const auto last = pass.enter();
        if (next->action == sharding::Action::backward && next->index == enc2)
          expect_error<LogicError>("backward enc2 was declared to need no weights", [&] { (void)last.weight(0); });
      }
      pass.finish();
    }
    {
      auto pass = sharded.train();
      auto use = pass.forward(enc1);
      pass.forfeit();
      expect_error<LogicError>("a weight is asked for after the end of the use", [&] { (void)use.weight(0); });
    }
    auto pass = sharded.evaluate();
    while (pass.next()) {
      const auto use = pass.enter();
      expect_error<LogicError>("makes no gradient in a pass of evaluating", [&] { (void)use.gradient(0); });
    }
    pass.finish();
  });
}

TEST(Misuse, AnUnfinishedPassIsReportedByTheNextAndTrainingContinues) {
  const Network network = unet_network();
  const Outcome expected = train_sharded(network, {.ranks = ranks, .micro_batches = {1}});
  const Outcome found = outcome_of(network, ranks, {}, 1, [&](Comm& communicator, Fsdp2& sharded) {
    {
      auto pass = sharded.train();
      expect_error<LogicError>("another one is under way", [&] { (void)sharded.evaluate(); });
      pass.forward(enc1).done();
    }
    expect_error<LogicError>("neither finished nor forfeited", [&] { sharded.step(0, {}); });
    expect_error<LogicError>("the one before was left unfinished", [&] { (void)sharded.train(); });
    auto pass = sharded.train();
    AnyPass any = any_pass(pass);
    const double loss = network.compute(any, 0, communicator.rank(), ranks);
    pass.finish();
    return std::vector{sharded.step(loss, {.lr = lr_of(0)}).loss};
  });
  expect_same(found, expected);
}

TEST(Weights, SetOrFilledWeightsTrainLikeInitializedOnes) {
  const Network network = unet_network();
  const Outcome expected = train_sharded(network, {.ranks = ranks, .micro_batches = {1, 1}});
  for (const bool set : {false, true}) {
    Outcome found;
    on_ranks(ranks, [&](Comm& communicator) {
      Fsdp2 first(communicator, network.units, {}, settings_for(network, 1));
      first.initialize(seed);
      const auto values = whole_weights(first);
      Fsdp2 sharded(communicator, network.units, {}, settings_for(network, 1));
      if (set)
        for (const auto& [name, whole] : values) sharded.set(name, whole);
      else
        sharded.fill([&](const Parameter& parameter, std::int64_t begin, std::span<float> part) {
          std::copy_n(values.at(parameter.name).begin() + begin, part.size(), part.begin());
        });
      expect_error<InputError>("'head.bias' has 1 elements, and 2 are given",
                               [&] { sharded.set("head.bias", std::array<float, 2>{}); });
      expect_error<InputError>("head.bios", [&] { sharded.set("head.bios", std::array<float, 1>{}); });
      const Outcome outcome = steps_of(sharded, network, {1, 1});
      if (communicator.rank() == 0) found = outcome;
    });
    expect_same(found, expected);
  }
}

TEST(LentMemory, CoversAllMemoryOfARankWithBitIdenticalResults) {
  const Network network = unet_network();
  const Outcome expected = train_sharded(network, {.ranks = ranks, .micro_batches = {1, 1}});
  Outcome found;
  on_ranks(ranks, [&](Comm& communicator) {
    Fsdp2::Settings settings = settings_for(network, 1);
    device::BytesByKind lent{};
    settings.lend = [&](device::MemoryKind kind, std::int64_t bytes) {
      lent[static_cast<std::size_t>(kind)] += bytes;
      const std::size_t size = static_cast<std::size_t>(round_up(bytes, device::alignment));
      auto* const memory = static_cast<std::byte*>(std::aligned_alloc(device::alignment, size));
      std::fill_n(memory, size, std::byte{});
      return std::shared_ptr<std::byte>(memory, [](std::byte* given) { std::free(given); });
    };
    Fsdp2 sharded(communicator, network.units, {}, settings);
    sharded.initialize(seed);
    const Outcome outcome = steps_of(sharded, network, {1, 1});
    for (const auto kind : {device::MemoryKind::weights, device::MemoryKind::gathered, device::MemoryKind::gradients,
                            device::MemoryKind::optimizer})
      EXPECT_EQ(lent[static_cast<std::size_t>(kind)], sharded.held().bytes[static_cast<std::size_t>(kind)])
          << device::memory_kind_names[static_cast<std::size_t>(kind)];
    if (communicator.rank() == 0) found = outcome;
  });
  expect_same(found, expected);
}

}  // namespace
}  // namespace fsdp::foreign
