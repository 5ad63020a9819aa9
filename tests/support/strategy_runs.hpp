// SPDX-License-Identifier: Apache-2.0
/// @file
/// What the tests of models outside the library share: losses under a strategy, and gradients against differences of
/// the loss.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <comm/collectives.hpp>
#include <comm/threads.hpp>
#include <fsdp/core/hash.hpp>
#include <fsdp/module/stack.hpp>
#include <fsdp/optim/initialize.hpp>
#include <fsdp/precision/policies.hpp>
#include <fsdp/sharding/run_time.hpp>
#include <fsdp/train/training.hpp>
#include <tiling/policies.hpp>

namespace fsdp::test {

using Comm = comm::Threads<>;
template <class Sharding>
using Fp32Stack = Stack<Sharding, Comm, Fp32, tiling::RunTime>;

/// A model's test: `model` makes it, `data(rank)` holds one rank's micro-batches as `batches`.
template <class Model, class DataT>
struct Task {
  using Sharding = typename Model::Stack::Sharding;
  using Data = DataT;
  typename Model::Config config = {};
  train::StepSize size = {};
  Sharding sharding = {};
  tiling::RunTime tiling = {};
  Units units = {};
};

/// The losses of some steps, alike on all ranks; the arena holds what was planned, to the byte.
template <class Model, class Data>
std::vector<double> losses(int ranks, const Task<Model, Data>& task, int steps = 8) {
  std::vector<double> found;
  Comm::run(ranks, {.checks = true}, [&](Comm& communicator) {
    train::Training<Model> training(communicator, Model(task.config, task.units), task.size, task.sharding,
                                    task.tiling);
    training.initialize(3);
    const Data data(communicator.rank(), task.config);
    std::vector<double> mine;
    for (int step = 0; step < steps; ++step) mine.push_back(training.step(data.batches, {.lr = 1e-2}));
    EXPECT_EQ(training.module().arena().peak(), training.plan().activation_bytes);
    if (communicator.rank() == 0) found = mine;
  });
  return found;
}

inline void expect_near(const std::vector<double>& found, const std::vector<double>& expected,
                        const std::string& what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  for (std::size_t step = 0; step < expected.size(); ++step)
    EXPECT_NEAR(found[step], expected[step], 1e-5 * expected.front()) << what << ", step " << step;
}

/// Weights in (-scale, scale), so that biases and norms have something to do; norms' are around 1.
template <class Module>
void spread_weights(Module& module, double scale) {
  for (const auto& piece : module.pieces()) {
    const bool ones = piece.parameter->initial == nn::Initial::ones;
    for (std::int64_t i = 0; i < piece.main.numel(); ++i) {
      const std::uint64_t bits =
          mixed(hashed(hash_seed, piece.parameter->name) + static_cast<std::uint64_t>(piece.begin + i));
      piece.main.data()[i] =
          static_cast<float>((ones ? 1 : 0) + scale * (static_cast<double>(bits >> 11) * 0x1p-52 - 1));
    }
  }
}

/// Of every piece of a parameter, the element with the largest gradient.
template <class Model, class Data>
void expect_gradients_are_differences(int ranks, const Task<Model, Data>& task) {
  Comm::run(ranks, {.checks = true}, [&](Comm& communicator) {
    train::Training<Model> training(communicator, Model(task.config, task.units), task.size, task.sharding,
                                    task.tiling);
    auto& module = training.module();
    spread_weights(module, 0.3);
    const Data data(communicator.rank(), task.config);
    const auto evaluate = [&] {
      double sum = 0;
      for (const auto& batch : data.batches) sum += training.executor().evaluate(batch);
      return comm::sum_over_ranks(communicator, sum, {"test"});
    };
    training.executor().train(data.batches, 1.0f);
    constexpr std::size_t most_pieces = 40;  // of a rank: all ranks evaluate as often
    ASSERT_LE(module.pieces().size(), most_pieces);
    for (int owner = 0; owner < communicator.size(); ++owner)
      for (std::size_t p = 0; p < most_pieces; ++p) {
        const bool mine = communicator.rank() == owner && p < module.pieces().size();
        const Tensor<float> values = mine ? module.pieces()[p].main : Tensor<float>();
        float* moved = nullptr;
        double gradient = 0;
        if (mine && values.numel() > 0) {
          const float* const all = module.pieces()[p].gradient.data();
          const auto largest =
              std::max_element(all, all + values.numel(), [](float a, float b) { return std::abs(a) < std::abs(b); });
          moved = values.data() + (largest - all);
          gradient = static_cast<double>(*largest);
        }
        const float before = moved != nullptr ? *moved : 0, h = 4e-3f;
        if (moved != nullptr) *moved = before + h;
        const double above = evaluate();
        if (moved != nullptr) *moved = before - h;
        const double below = evaluate();
        if (moved == nullptr) continue;
        *moved = before;
        const double expected = (above - below) / (2 * static_cast<double>(h));
        EXPECT_NEAR(gradient, expected, 1e-2 * std::abs(expected) + 5e-3) << module.pieces()[p].parameter->name;
      }
  });
}

}  // namespace fsdp::test
