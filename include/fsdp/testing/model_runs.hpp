// SPDX-License-Identifier: Apache-2.0
/// @file
/// Helpers of the suites of models and optimizers: train any model over Threads, optionally with a resume between two
/// checkpoints, and compare its gradients with finite differences of its loss. Contains no tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <string_view>
#include <type_traits>
#include <vector>

#include <tessera/comm/collectives.hpp>
#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/checkpoint/folder.hpp>
#include <tessera/fsdp/checkpoint/shards_io.hpp>
#include <tessera/fsdp/core/hash.hpp>
#include <tessera/fsdp/model_files/model_files.hpp>
#include <tessera/fsdp/module/stack.hpp>
#include <tessera/fsdp/precision/policies.hpp>
#include <tessera/fsdp/testing/report.hpp>
#include <tessera/fsdp/testing/results.hpp>
#include <tessera/fsdp/training/run_time_optimizer.hpp>
#include <tessera/fsdp/training/training.hpp>
#include <tessera/tiling/policies.hpp>

namespace fsdp::testing {

/// The stacks in which models are tested.
template <class Sharding>
using ModelStack = Stack<Sharding, comm::Threads<>, Fp32, tiling::RunTimeTiling>;

/// A model and its training data: `Data(rank, config)` has the micro-batches of one rank as `batches`.
template <class ModelT, class DataT>
struct ModelTask {
  using Model = ModelT;
  using Data = DataT;
  using Sharding = typename Model::Stack::Sharding;
  typename Model::Config config = {};
  train::StepSize size = {};
  Sharding sharding = {};
  tiling::RunTimeTiling tiling = {};
  UnitOptions units = {};

  Data data(int rank) const { return Data(rank, config); }
};

struct ModelRunOptions {
  int steps = 8;  ///< total number of steps, including those before the checkpoint from which the run resumes
  double lr = 1e-2;
  std::filesystem::path save_to = {};
  std::filesystem::path resume = {};
  bool noise = false;  ///< whether batches get noise, as from the trainer, if their type supports it
};

namespace detail {

/// Copies this rank's pieces of weights and states into the unsharded tensors of the result.
void collect(auto& training, RunResult& run) {
  const auto& shards = training.module().shards();
  for (std::size_t index = 0; index < shards.size(); ++index) {
    const auto& piece = shards[index];
    if (!piece.owned) continue;
    const auto place = [&](std::vector<float>& whole, Tensor<const float> part) {
      whole.resize(static_cast<std::size_t>(piece.parameter->shape.numel()));
      std::copy_n(part.data(), part.numel(), whole.begin() + piece.begin);
    };
    place(run.weights[piece.parameter->name],
          piece.has_main() ? Tensor<const float>(piece.main) : Tensor<const float>(piece.model));
    std::size_t state = 0;
    for (const optim::StateSpec& spec : training.optimizer().specs(piece)) {
      const optim::State& own = training.optimizer().states(index)[state++];
      const std::vector<float> values = optim::decoded(own.format(), own.bytes(), own.numel());
      place(run.states[message(piece.parameter->name, ".", spec.name)], {values.data(), {std::ssize(values)}});
    }
  }
}

}  // namespace detail

struct NothingAfter {
  template <class Training>
  void operator()(Training&) const {}
};

/// Trains a ModelTask, or a type with its members, on `ranks` ranks, calls after(training) after the last step, and
/// evaluates. Rethrows the error of the first rank that failed.
template <class Task, class Optimizer = optim::RunTimeOptimizer, class After = NothingAfter>
RunResult train_model(int ranks, const Task& task, const ModelRunOptions& options = {}, const Optimizer& optimizer = {},
                      const After& after = {}) {
  using Model = typename Task::Model;
  using Comm = comm::Threads<>;
  RunResult result(ranks);
  std::mutex mutex;
  Comm::run(ranks, {.checks = true, .record = true}, [&](Comm& communicator) {
    train::Training<Model, Optimizer> training(communicator, Model(task.config, task.units), task.size, task.sharding,
                                               task.tiling, {.optimizer = optimizer});
    training.initialize(3);
    auto& module = training.module();
    auto& sharded = training.optimizer();
    if (!options.resume.empty())
      train::restore(module, sharded, checkpoint::Checkpoint::open(options.resume, checkpoint::read_listing<Model>));
    auto data = task.data(communicator.rank());
    if constexpr (nn::detail::has_set_noise<std::remove_cvref_t<decltype(data.batches.front())>>())
      for (auto& batch : data.batches)
        if (options.noise) batch.set_noise(1, communicator.rank());
    std::vector<double> losses;
    while (sharded.steps() < options.steps) {
      for (auto* axis : module.communicators()) axis->monitor().records.clear();
      losses.push_back(training.step(data.batches, {.lr = options.lr}));
    }
    if (!options.save_to.empty()) {
      checkpoint::Save save(options.save_to, sharded.steps(), 1, checkpoint::listing_of(module.model()),
                            train::states_of(module, sharded.optimizer()));
      checkpoint::save(save, communicator,
                       {.step = sharded.steps(), .windows = 1, .seq_len = 1, .schedule_steps = sharded.steps()},
                       [&](checkpoint::Save& file) { train::write_shards(module, sharded, file); });
    }
    after(training);
    training.executor().evaluate(data.batches.front());
    module.synchronize();
    const std::scoped_lock lock(mutex);
    detail::collect(training, result);
    result.planned[static_cast<std::size_t>(communicator.rank())] = training.plan().bytes;
    result.taken[static_cast<std::size_t>(communicator.rank())] = module.peak_bytes();
    if (communicator.rank() == 0) result.losses = losses;
  });
  return result;
}

/// Sets weights to values in (-scale, scale), and weights of norms to values around 1, so that biases and norms have an
/// effect.
void spread_weights(auto& module, double scale) {
  for (const auto& piece : module.shards()) {
    const bool ones = piece.parameter->initial == nn::Initial::ones;
    for (std::int64_t i = 0; i < piece.main.numel(); ++i) {
      const std::uint64_t bits =
          mixed(hashed(hash_seed, piece.parameter->name) + static_cast<std::uint64_t>(piece.begin + i));
      piece.main.data()[i] =
          static_cast<float>((ones ? 1 : 0) + scale * (static_cast<double>(bits >> 11) * 0x1p-52 - 1));
    }
  }
  module.sync_model_weights();
}

/// An element of a parameter, to be perturbed. All ranks that store it perturb it together: if one replica did so
/// alone, the replicas would be different models.
struct MovedElement {
  std::uint64_t name = 0;  ///< hash of the parameter's name
  std::int64_t index = 0;  ///< index in the unsharded parameter

  /// Returns this rank's copy of the element, or nullptr.
  float* in(auto& module) const {
    for (const auto& piece : module.shards())
      if (hashed(hash_seed, std::string_view(piece.parameter->name)) == name && index >= piece.begin &&
          index < piece.begin + piece.main.numel())
        return piece.main.data() + (index - piece.begin);
    return nullptr;
  }
};

/// Returns the element of a piece that has the largest gradient.
MovedElement steepest(const auto& piece) {
  const float* const all = piece.gradient.data();
  const auto largest =
      std::max_element(all, all + piece.main.numel(), [](float a, float b) { return std::abs(a) < std::abs(b); });
  return {.name = hashed(hash_seed, std::string_view(piece.parameter->name)), .index = piece.begin + (largest - all)};
}

/// Compares the largest gradient element of every piece with central differences of the loss.
template <class Model, class Data>
void check_model_gradients(std::string_view where, int ranks, const ModelTask<Model, Data>& task) {
  constexpr std::string_view asked =
      "gradients are the derivatives of the loss, of every weight: central differences of the sum of all targets' "
      "losses";
  using Comm = comm::Threads<>;
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
    auto most = static_cast<std::int64_t>(module.shards().size());  // maximum over ranks: all evaluate equally often
    comm::reduce(communicator, std::span<std::int64_t>(&most, 1), comm::Reduction::max, {"test"});
    for (int owner = 0; owner < communicator.size(); ++owner)
      for (std::size_t p = 0; p < static_cast<std::size_t>(most); ++p) {
        const bool mine = communicator.rank() == owner && p < module.shards().size() &&
                          module.shards()[p].main.numel() > 0 && module.shards()[p].owned;
        MovedElement moved;
        if (mine) moved = steepest(module.shards()[p]);
        comm::broadcast(communicator, std::as_writable_bytes(std::span(&moved, 1)), owner, {"test"});
        float* const value = moved.in(module);
        const double gradient =
            mine ? static_cast<double>(module.shards()[p].gradient.data()[value - module.shards()[p].main.data()]) : 0;
        const float before = value != nullptr ? *value : 0, h = 4e-3f;
        const auto loss_at = [&](float moved_to) {
          if (value != nullptr) *value = moved_to;
          return evaluate();
        };
        const double above = loss_at(before + h), below = loss_at(before - h);
        if (value != nullptr) *value = before;
        if (!mine) continue;
        const double expected = (above - below) / (2 * static_cast<double>(h));
        if (!(std::abs(gradient - expected) <= 1e-2 * std::abs(expected) + 5e-3))
          fail(asked, message(where, ", rank ", communicator.rank()), "the largest gradient of ",
               module.shards()[p].parameter->name, " is ", in_words(gradient), "; moving that weight says ",
               in_words(expected));
      }
  });
}

}  // namespace fsdp::testing
