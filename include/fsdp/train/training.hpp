// SPDX-License-Identifier: Apache-2.0
/// @file
/// One way to make a step: what it takes is planned by a dry run, then module, executor, optimizer and the exchange of
/// counts are built for that plan.
///
/// `Training` and `Evaluation` are all that a loop of one's own needs, and what the trainer and the commands are made
/// of.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <span>

#include <comm/collectives.hpp>
#include <fsdp/core/error.hpp>
#include <fsdp/module/count_exchange.hpp>
#include <fsdp/module/executor.hpp>
#include <fsdp/module/sharded_module.hpp>
#include <fsdp/optim/initialize.hpp>
#include <fsdp/optim/sharded_optimizer.hpp>
#include <fsdp/optim/training_step.hpp>
#include <fsdp/plan/dry_run.hpp>
#include <fsdp/train/batches.hpp>
#include <fsdp/train/launch.hpp>
#include <fsdp/train/options.hpp>

namespace fsdp::train {

/// The step of one rank.
struct StepSize {
  std::int64_t sequences = 1;  ///< in one micro-batch
  bool fewer = false;          ///< micro-batches may have fewer; planning then takes longer by their number
  std::int64_t sequence_length = 0;
  int micro_batches = 1;
  int threads = 0;               ///< of each rank; 0: cores / ranks, at least 1
  std::int64_t logit_rows = 0;   ///< as in plan::Request
  std::int64_t cached_rows = 0;  ///< as in RunShape
};

/// The dry run's request for a step of this size on one of `ranks` ranks.
plan::Request plan_request(const StepSize& size, int ranks, int rank, Purpose purpose = Purpose::train);

/// The step that options describe, on one of `ranks` ranks.
StepSize step_size(const TrainOptions& options, int ranks);

/// The dry run's request for these options and an optimizer, of the rank that takes the most memory.
plan::Request plan_request(const TrainOptions& options, int ranks, StepWork work);
/// The same for the work of an optimizer's step.
template <class Optimizer>
plan::Request plan_request(const TrainOptions& options, int ranks, const Optimizer& optimizer) {
  return plan_request(options, ranks, optim::step_work(optimizer));
}

/// The request's shape with the bytes of its plan: what a ShardedModule is built for.
RunShape planned_shape(const plan::Request& request, const plan::Plan& plan);

/// A model that is trained, on one rank. Weights are zero until `initialize` or a checkpoint (train/shards_io.hpp).
template <class ModelT, class OptimizerT = optim::RunTime>
class Training {
 public:
  using Model = ModelT;
  using Optimizer = optim::ShardedOptimizer<Model, OptimizerT>;
  using Stack = typename Model::Stack;
  using Comm = typename Stack::Comm;
  using Batch = typename Model::Batch;
  using Module = ShardedModule<Model>;

  /// What a run may choose besides.
  struct Choices {
    OptimizerT optimizer = {};
    device::StepRules rules = {};  ///< clipping, and steps whose gradients overflow
    bool graphs = false;           ///< steps that are alike are launched as one graph (optim/training_step.hpp)
    Observer observer = {};        ///< of the events of every step
  };

  /// Plans and allocates; collective. The communicator must outlive it. Throws InputError for what does not fit
  /// together and MemoryError where there is no room.
  Training(Comm& communicator, const Model& model, const StepSize& size, typename Stack::Sharding sharding = {},
           typename Stack::Tiling tiling = {}, const Choices& choices = {})
      : request_(request_of(communicator, size, choices.optimizer)),
        plan_(plan::dry_run(model, sharding, tiling, request_, choices.optimizer)),
        module_(communicator, model, sharding, tiling, planned_shape(request_, plan_)),
        optimizer_(module_, choices.optimizer, choices.rules),
        executor_(module_, choices.observer),
        step_(module_, executor_, optimizer_, choices.graphs),
        counts_(communicator, module_.ledger()),
        held_out_counts_(communicator, module_.ledger()) {}

  /// What the step was planned and built of.
  /// @{
  Module& module() { return module_; }
  Optimizer& optimizer() { return optimizer_; }
  Executor<Model>& executor() { return executor_; }
  const plan::Plan& plan() const { return plan_; }
  const plan::Request& request() const { return request_; }
  /// @}
  /// The exchanges that the plan has room for: of steps, which may be under way while held-out data are evaluated, and
  /// of those.
  /// @{
  CountExchange<Comm>& counts() { return counts_; }
  CountExchange<Comm>& held_out_counts() { return held_out_counts_; }
  /// @}
  /// Tensor memory of this rank at its peak.
  std::int64_t peak_bytes() const {
    std::int64_t sum = 0;
    for (const std::int64_t part : module_.peak_bytes()) sum += part;
    return sum;
  }

  /// Weights from a seed: the same numbers however they are sharded.
  void initialize(std::uint64_t seed) { optim::initialize(module_, seed); }

  /// Queues a step; see TrainingStep::queue. Throws Error where a micro-batch is not of the size that was planned.
  void queue(std::span<const Batch> micro_batches, float scale, const device::StepInputs& inputs, bool alike) {
    for (const Batch& batch : micro_batches)
      require(batch.sequences == request_.sequences || (request_.fewer && batch.sequences < request_.sequences),
              "training: a micro-batch has ", batch.sequences, " sequences, and steps were planned for ",
              request_.sequences, request_.fewer ? " at most" : "; plan them with StepSize{.fewer = true}");
    step_.queue(micro_batches, scale, inputs, alike);
  }

  /// One step on all ranks' micro-batches. Returns the mean loss of their targets before the update, the same on every
  /// rank, when all is done. Collective. Throws DivergedError, with the weights untouched, where the loss or the
  /// gradient is not finite.
  double step(std::span<const Batch> micro_batches, const device::StepInputs& inputs) {
    counts_.start([&] {
      BatchCounts sum;
      for (const Batch& batch : micro_batches) sum += batch.counts();
      return sum;
    });
    const double targets = static_cast<double>(std::max<std::int64_t>(counts_.finish().valid_targets, 1));
    queue(micro_batches, static_cast<float>(inputs.loss_scale / targets), inputs, false);
    const device::StepDecision& found = optimizer_.control().decision();
    const double loss = found.loss / targets;
    require<DivergedError>(
        found.stopped == 0, "step ", optimizer_.steps(), ": loss is ", std::abs(loss), " and the gradient norm is ",
        std::abs(found.norm),
        "; stopped before any weight was touched. Lower the learning rate, or look at the data of this step");
    return loss;
  }
  /// The same with one micro-batch.
  double step(const Batch& batch, const device::StepInputs& inputs) { return step({&batch, 1}, inputs); }

 private:
  static plan::Request request_of(const Comm& communicator, const StepSize& size, const OptimizerT& optimizer) {
    plan::Request request = plan_request(size, communicator.size(), communicator.rank());
    request.shape.step_work = optim::step_work(optimizer);
    return request;
  }

  plan::Request request_;
  plan::Plan plan_;
  Module module_;
  Optimizer optimizer_;
  Executor<Model> executor_;
  optim::TrainingStep<Model, OptimizerT> step_;
  CountExchange<Comm> counts_, held_out_counts_;
};

/// A model for forward passes alone, on one rank: mean losses, or logits where that is its purpose.
template <class ModelT>
class Evaluation {
 public:
  using Model = ModelT;
  using Stack = typename Model::Stack;
  using Comm = typename Stack::Comm;

  /// As Training does. `purpose`: evaluate or generate.
  Evaluation(Comm& communicator, const Model& model, const StepSize& size, typename Stack::Sharding sharding = {},
             typename Stack::Tiling tiling = {}, Purpose purpose = Purpose::evaluate)
      : request_(plan_request(size, communicator.size(), communicator.rank(), purpose)),
        plan_(plan::dry_run(model, sharding, tiling, request_)),
        module_(communicator, model, sharding, tiling, planned_shape(request_, plan_), purpose),
        executor_(module_) {
    if (purpose == Purpose::evaluate) counts_.emplace(communicator, module_.ledger());
  }

  /// What was planned and built.
  /// @{
  ShardedModule<Model>& module() { return module_; }
  Executor<Model>& executor() { return executor_; }
  const plan::Plan& plan() const { return plan_; }
  /// @}
  /// The exchange of counts that an evaluation has room for.
  CountExchange<Comm>& counts() {
    require(counts_.has_value(), "evaluation: the purpose is to generate, which counts no targets");
    return *counts_;
  }

 private:
  plan::Request request_;
  plan::Plan plan_;
  ShardedModule<Model> module_;
  Executor<Model> executor_;
  std::optional<CountExchange<Comm>> counts_;
};

}  // namespace fsdp::train
