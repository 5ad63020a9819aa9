// SPDX-License-Identifier: Apache-2.0
/// @file
/// Helpers of the suite of models: the possible contents of a model's batches, and the memory of a step on such
/// batches, on this device and on Meta. Contains no tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include <tessera/comm/simulated.hpp>
#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/execution/executor.hpp>
#include <tessera/fsdp/execution/sharded_model.hpp>
#include <tessera/fsdp/module/stack.hpp>
#include <tessera/fsdp/optim/sharded_optimizer.hpp>
#include <tessera/fsdp/testing/model_runs.hpp>
#include <tessera/fsdp/training/run_time_optimizer.hpp>
#include <tessera/fsdp/training/training.hpp>

namespace fsdp::testing {

/// Which targets of a batch contribute to the loss.
enum class Counting : std::uint8_t { every, some, none };

/// Properties of the batches of a step.
struct Load {
  bool noise = false;      ///< whether set_noise was called
  bool documents = false;  ///< whether each token is a separate document
  Counting targets = Counting::every;
  std::int64_t sequences = 0;  ///< number of sequences in each micro-batch

  /// Returns a description of the load, for messages.
  std::string in_words() const {
    constexpr std::string_view counting[] = {"every target counts", "some targets count", "no target counts"};
    return message(sequences, sequences == 1 ? " sequence" : " sequences", ", ", noise ? "with" : "without", " noise, ",
                   documents ? "with" : "without", " packed documents, ", counting[static_cast<std::size_t>(targets)]);
  }
};

namespace detail {

template <class T>
requires std::is_arithmetic_v<T>
void element_of(Tensor<const T>);

/// Cuts a tensor with the rows of `of` sequences to the rows of the first `sequences`.
template <class T>
void keep_first(Tensor<T>& rows, std::int64_t sequences, std::int64_t of) {
  rows = rows.slice(0, rows.shape()[0] / of * sequences);
}

/// Returns the same peak on Meta, as one rank of `ranks`.
template <class Model, class Task, class Batches>
std::int64_t peak_on_meta(const Task& task, const plan::Request& request, const Batches& batches) {
  using MetaModel = typename Model::template On<MetaStack<typename Model::Stack>>;
  typename MetaModel::Stack::Comm communicator(
      comm::simulated_world<typename Model::Stack::Comm>(request.ranks, request.rank));
  RunShape shape = request.shape;
  shape.plans = nn::shared_plans(nn::TilePlans(task.tiling));
  ShardedModel<MetaModel> module(communicator, MetaModel(task.config, task.units),
                                 described<typename Model::Stack>(task.sharding), shape);
  optim::ShardedOptimizer<typename ShardedModel<MetaModel>::Stack, optim::RunTimeOptimizer> optimizer(
      module, optim::RunTimeOptimizer());
  Executor<MetaModel> executor(module);
  executor.queue_training(batches, 1.0f);
  optimizer.step(executor.loss(), {});
  for (const auto& batch : batches) executor.evaluate(batch);
  return module.arena().peak();
}

}  // namespace detail

/// Micro-batches with a given load, derived from other micro-batches. Owns the memory that they refer to.
template <class Batch>
class LoadedBatches {
 public:
  /// `given` must outlive this object.
  LoadedBatches(const std::vector<Batch>& given, const Load& load) : load_(load), batches_(given) {
    for (Batch& batch : batches_) {
      if (load.sequences < batch.sequences) cut(batch);
      mark_targets(batch);
      pack_documents(batch);
      add_noise(batch);
    }
  }
  LoadedBatches(const LoadedBatches&) = delete;
  LoadedBatches& operator=(const LoadedBatches&) = delete;

  /// Returns the micro-batches.
  const std::vector<Batch>& batches() const { return batches_; }

  /// Whether batches of this type can have the load: they have the necessary members, they count the remaining targets,
  /// and the model accepts them.
  bool possible(const auto& model, std::int64_t sequence_length) const {
    for (const Batch& batch : batches_) {
      const std::int64_t counted = batch.counts().valid_targets;
      if (load_.targets == Counting::none ? counted != 0 : counted <= 0) return false;
      try {
        model.validate(batch, sequence_length);
      } catch (const InputError&) {
        return false;
      }
    }
    return possible_;
  }

 private:
  /// Cuts the members that the library and the examples use. If a batch has other members, the model rejects it.
  void cut(Batch& batch) {
    if constexpr (requires { detail::keep_first(batch.targets, 1, 1); }) {
      const std::int64_t of = batch.sequences;
      detail::keep_first(batch.targets, load_.sequences, of);
      if constexpr (requires { detail::keep_first(batch.tokens, 1, 1); })
        detail::keep_first(batch.tokens, load_.sequences, of);
      if constexpr (requires { detail::keep_first(batch.inputs, 1, 1); })
        detail::keep_first(batch.inputs, load_.sequences, of);
      batch.sequences = load_.sequences;
    } else {
      possible_ = false;
    }
  }
  /// Of targets that are numbers, a negative one or NaN is ignored.
  void mark_targets(Batch& batch) {
    if constexpr (requires { detail::element_of(batch.targets); }) {
      using T = std::remove_cvref_t<decltype(batch.targets[0])>;
      constexpr T ignored = std::is_floating_point_v<T> ? std::numeric_limits<T>::quiet_NaN() : T(-1);
      const std::int64_t count = batch.targets.numel();
      auto& marked = memory_.emplace_back(static_cast<std::size_t>(count) * sizeof(T));
      T* const targets = reinterpret_cast<T*>(marked.data());
      for (std::int64_t i = 0; i < count; ++i) {
        const T given = batch.targets.data()[i];
        const bool counts = load_.targets == Counting::every || (load_.targets == Counting::some && i % 3 == 1);
        targets[i] = !counts ? ignored : given > 0 ? given : T(0);
      }
      batch.targets = {targets, batch.targets.shape()};
    } else {
      possible_ = possible_ && load_.targets == Counting::every;
    }
  }
  void pack_documents(Batch& batch) {
    if constexpr (nn::detail::has_documents<Batch>() && requires { batch.targets.shape()[0]; }) {
      const std::int64_t tokens = batch.targets.shape()[0];
      auto& lengths = lengths_.emplace_back();
      for (std::int64_t token = 0; load_.documents && token <= tokens; ++token) lengths.push_back(token);
      batch.documents = lengths;
    } else {
      possible_ = possible_ && !load_.documents;
    }
  }
  void add_noise(Batch& batch) {
    if constexpr (nn::detail::has_set_noise<Batch>())
      batch.set_noise(load_.noise ? 5 : 0, 7);
    else
      possible_ = possible_ && !load_.noise;
  }

  Load load_;
  bool possible_ = true;
  std::vector<Batch> batches_;
  std::vector<std::vector<std::byte>> memory_;      ///< memory of marked targets; a move keeps its address
  std::vector<std::vector<std::int64_t>> lengths_;  ///< lengths of documents, in tokens
};

/// Returns the loads to test for batches of `sequences` sequences and of fewer, for every type of batch.
inline std::vector<Load> all_loads(std::int64_t sequences) {
  std::vector<Load> loads;
  for (const std::int64_t count : {sequences, (sequences + 1) / 2}) {
    if (count == sequences && !loads.empty()) continue;
    for (const Counting targets : {Counting::every, Counting::some, Counting::none})
      for (const bool documents : {false, true})
        for (const bool noise : {false, true})
          loads.push_back({.noise = noise, .documents = documents, .targets = targets, .sequences = count});
  }
  return loads;
}

/// Bytes of a rank's arena: the peak in a step and an evaluation on this device, the same on Meta, and the planned
/// bytes.
struct LoadBytes {
  std::int64_t taken = 0, on_meta = 0, planned = 0;
};

/// Returns the bytes of every rank for a step on batches with this load. The list is empty if batches of this type
/// cannot have the load. Rethrows the error of the first rank that failed.
template <class Model, class Data>
std::vector<LoadBytes> bytes_of_load(int ranks, const ModelTask<Model, Data>& task, const Load& load) {
  using Comm = comm::Threads<>;
  using Batches = LoadedBatches<typename Model::Batch>;
  for (int rank = 0; rank < ranks; ++rank) {
    const Data data(rank, task.config);
    if (!Batches(data.batches, load).possible(Model(task.config, task.units), task.size.sequence_length)) return {};
  }
  train::StepSize size = task.size;
  size.fewer = load.sequences < size.sequences;
  std::vector<LoadBytes> bytes(static_cast<std::size_t>(ranks));
  Comm::run(ranks, {.checks = true}, [&](Comm& communicator) {
    train::Training<Model> training(communicator, Model(task.config, task.units), size, task.sharding, task.tiling);
    training.initialize(3);
    const Data data(communicator.rank(), task.config);
    const Batches loaded(data.batches, load);
    training.step(loaded.batches(), {.lr = 1e-3});
    for (const auto& batch : loaded.batches()) training.executor().evaluate(batch);
    bytes[static_cast<std::size_t>(communicator.rank())] = {
        .taken = training.module().arena().peak(),
        .on_meta = detail::peak_on_meta<Model>(task, training.request(), loaded.batches()),
        .planned = training.plan().activation_bytes};
  });
  return bytes;
}

}  // namespace fsdp::testing
