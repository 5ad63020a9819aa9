// SPDX-License-Identifier: Apache-2.0
/// @file
/// Training steps: a dry run plans the memory of a step, then module, executor, optimizer and count exchange are built
/// for that plan.
///
/// Use `Training` and `Evaluation` for your own training loop. The trainer and the commands use them, too.
#pragma once

#include <tessera/fsdp/core/language.hpp>  // before all others

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/execution/count_exchange.hpp>
#include <tessera/fsdp/execution/executor.hpp>
#include <tessera/fsdp/execution/sharded_model.hpp>
#include <tessera/fsdp/execution/training_step.hpp>
#include <tessera/fsdp/module/host_weights.hpp>
#include <tessera/fsdp/nn/batch.hpp>
#include <tessera/fsdp/optim/optimizer.hpp>
#include <tessera/fsdp/optim/sharded_optimizer.hpp>
#include <tessera/fsdp/plan/dry_run.hpp>
#include <tessera/fsdp/training/step_size.hpp>

namespace fsdp::train {

/// One rank's training of a model: its shards, optimizer, executor and memory. Weights are zero until you call
/// `initialize` or load a checkpoint (tessera/fsdp/checkpoint/shards_io.hpp, tessera/fsdp/model_files/load.hpp).
/// `Watch`: WatchedSteps (tessera/fsdp/verification/verification.hpp) if steps may be digested or verified.
template <class ModelT, class OptimizerT = optim::RunTimeOptimizer, class Watch = UnwatchedSteps>
class Training {
 public:
  using Model = ModelT;
  using Stack = typename Model::Stack;
  using Comm = typename Stack::Comm;
  using Batch = typename Model::Batch;
  using Module = ShardedModel<Model>;
  using Optimizer = optim::ShardedOptimizer<typename Module::Stack, OptimizerT>;
  static_assert(optim::check_optimizer<OptimizerT>());

  /// Optional settings.
  struct Options {
    OptimizerT optimizer = {};     ///< the optimizer with its constants
    device::StepRules rules = {};  ///< gradient clipping, and whether steps with overflowing gradients are skipped
    bool graphs = false;     ///< capture a step as a graph and replay it (tessera/fsdp/execution/training_step.hpp)
    Observer observer = {};  ///< receives the events of every step
  };

  /// Plans a step and allocates its memory. Collective. The communicator must outlive it. Throws InputError if model,
  /// policies and sizes do not fit together, MemoryError if there is not enough memory.
  Training(Comm& communicator, const Model& model, const StepSize& size, typename Stack::Sharding sharding = {},
           typename Stack::Tiling tiling = {}, const Options& options = {})
      : request_(plan_request(size, communicator.size(), communicator.rank(), Purpose::train,
                              optim::step_work(options.optimizer))),
        plan_(plan::dry_run(model, sharding, tiling, request_, options.optimizer, Watch())),
        module_(communicator, model, sharding, planned_shape(request_, plan_)),
        optimizer_(module_, options.optimizer, options.rules),
        executor_(module_, options.observer),
        step_(module_, executor_, optimizer_, options.graphs),
        counts_(communicator, module_.ledger()),
        held_out_counts_(communicator, module_.ledger()) {}

  /// Return the components of the step.
  /// @{
  Module& module() { return module_; }
  Optimizer& optimizer() { return optimizer_; }
  Executor<Model>& executor() { return executor_; }
  const plan::Plan& plan() const { return plan_; }
  const plan::Request& request() const { return request_; }
  /// @}
  /// The exchanges of counts between ranks: one for training steps, and one for held-out data, since a step's exchange
  /// may be in progress while held-out data are evaluated.
  /// @{
  CountExchange<Comm>& counts() { return counts_; }
  CountExchange<Comm>& held_out_counts() { return held_out_counts_; }
  /// @}
  /// Returns calls and bytes of collectives, by axis and kind; see ShardedModule::traffic. A graph's collectives are
  /// counted at each launch.
  comm::MeshTraffic traffic() { return module_.traffic(); }
  /// Returns the peak tensor memory of this rank in bytes, summed over all kinds.
  std::int64_t peak_bytes() const {
    std::int64_t sum = 0;
    for (const std::int64_t part : module_.peak_bytes()) sum += part;
    return sum;
  }

  /// Initializes the weights from a seed. The numbers do not depend on the sharding.
  void initialize(std::uint64_t seed) { optim::initialize(module_, seed); }

  /// Enqueues a step; see TrainingStep::queue. Throws Error if a micro-batch does not have the planned size.
  void queue(std::span<const Batch> micro_batches, float scale, const device::StepInputs& inputs, bool alike,
             const std::function<void()>& before_update = {}) {
    for (const Batch& batch : micro_batches)
      require(batch.sequences == request_.size().sequences ||
                  (request_.size().fewer && batch.sequences < request_.size().sequences),
              "training: a micro-batch has ", batch.sequences, " sequences, and steps were planned for ",
              request_.size().sequences,
              request_.size().fewer ? " at most" : "; plan them with StepSize{.fewer = true}");
    step_.queue(micro_batches, scale, inputs, alike, before_update);
  }

  /// Runs one step on all ranks' micro-batches and waits for it. If a step is cut into pieces (Reproducible), a rank
  /// passes only the micro-batches of its own pieces (ShardedModule::own_micro_batches). Ranks that share sequences
  /// pass the same whole micro-batches, and each rank computes its rows (ShardedModule::sequence_group). Returns the
  /// mean loss over all ranks' targets before the update, the same on every rank. Collective. Throws DivergedError if
  /// the loss or the gradient is not finite; the weights are then unchanged.
  double step(std::span<const Batch> micro_batches, const device::StepInputs& inputs) {
    counts_.start([&] {
      const SequenceGroup group = module_.sequence_group();
      BatchCounts sum;
      for (const Batch& batch : micro_batches) sum += nn::counts_of_part(batch, group.member, group.size);
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
  plan::Request request_;
  plan::Plan plan_;
  Module module_;
  Optimizer optimizer_;
  Executor<Model> executor_;
  optim::TrainingStep<Model, OptimizerT> step_;
  CountExchange<Comm> counts_, held_out_counts_;
};

/// One rank's forward passes of a model: for mean losses or, with Purpose::generate, for logits. Include
/// tessera/fsdp/training/run_time_optimizer.hpp: its dry run is that of the default optimizer.
template <class ModelT>
class Evaluation {
 public:
  using Model = ModelT;
  using Stack = typename Model::Stack;
  using Comm = typename Stack::Comm;

  /// The arguments are as in Training. `purpose`: evaluate or generate. Generation does not support sequences that
  /// several ranks share.
  Evaluation(Comm& communicator, const Model& model, const StepSize& size, typename Stack::Sharding sharding = {},
             typename Stack::Tiling tiling = {}, Purpose purpose = Purpose::evaluate)
      : request_(plan_request(size, communicator.size(), communicator.rank(), purpose)),
        plan_(plan::dry_run(model, sharding, tiling, request_)),
        module_(communicator, model, sharding, planned_shape(request_, plan_), purpose),
        executor_(module_) {
    if (purpose == Purpose::evaluate) counts_.emplace(communicator, module_.ledger());
  }

  /// Return the components of a pass.
  /// @{
  ShardedModel<Model>& module() { return module_; }
  Executor<Model>& executor() { return executor_; }
  const plan::Plan& plan() const { return plan_; }
  /// @}
  /// The exchange of counts between ranks. Throws Error if the purpose is to generate.
  CountExchange<Comm>& counts() {
    require(counts_.has_value(), "evaluation: the purpose is to generate, which counts no targets");
    return *counts_;
  }

 private:
  plan::Request request_;
  plan::Plan plan_;
  ShardedModel<Model> module_;
  Executor<Model> executor_;
  std::optional<CountExchange<Comm>> counts_;
};

}  // namespace fsdp::train
