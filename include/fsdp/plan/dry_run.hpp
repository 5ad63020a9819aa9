// SPDX-License-Identifier: Apache-2.0
/// @file
/// The dry run: runs the same model on a device without storage and a communicator without peers, and returns the exact
/// peak memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/comm/simulated.hpp>
#include <tessera/fsdp/core/dtype.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/fsdp/device/meta.hpp>
#include <tessera/fsdp/execution/count_exchange.hpp>
#include <tessera/fsdp/execution/executor.hpp>
#include <tessera/fsdp/execution/sharded_model.hpp>
#include <tessera/fsdp/execution/step_hooks.hpp>
#include <tessera/fsdp/execution/unit_streams.hpp>
#include <tessera/fsdp/module/stack.hpp>
#include <tessera/fsdp/optim/sharded_optimizer.hpp>
#include <tessera/fsdp/plan/dry_run_parts.hpp>
#include <tessera/fsdp/plan/plan.hpp>

namespace fsdp {

// Compiled into the library.
extern template class OffloadedInputs<device::Cpu, float>;
extern template class OffloadedInputs<device::Cpu, bf16>;
extern template class OffloadedInputs<device::Meta, float>;
extern template class OffloadedInputs<device::Meta, bf16>;

struct WatchedSteps;  // tessera/fsdp/verification/verification.hpp

/// For a Training whose steps are neither digested nor verified. The alternative is WatchedSteps.
struct UnwatchedSteps {
  /// The watch of a dry run of `Model`: none.
  template <class Model>
  struct Of {
    /// Watches the steps of a dry run's executor. `has_pieces`: whether the strategy cuts steps into pieces. Throws
    /// LogicError here if steps are to be digested or verified.
    Of(ShardedModel<Model>& module, Executor<Model>&, bool /*has_pieces*/) { check_unwatched_plan(module.size()); }
    /// Repeats micro-batches as a verification does, and keeps digests of weights and states. `for_each_load(pass)`
    /// calls pass(batch) with every full load.
    template <class ForEachLoad, class Optimizer>
    void verify(const ForEachLoad&, const Optimizer&) {}
  };
};

namespace plan {

/// The tasks of a module's training pass, and their names.
struct PlannedSchedule {
  sharding::Schedule tasks = {};
  sharding::Names names = {};
  sharding::Residency residency = {};
};

namespace detail {

/// See planned_schedule. `MetaModel`: a model's MetaTwin; `Sharding`: the strategy of its stack.
template <class MetaModel, class Sharding>
PlannedSchedule schedule_on_meta(const MetaModel& meta, const Sharding& sharding, const RunShape& shape, int ranks) {
  typename MetaModel::Stack::Comm communicator({.ranks = ranks, .rank = 0});
  const ShardedModel<MetaModel> module(communicator, meta, sharding, shape);
  return {.tasks = module.schedule(sharding::Pass::train), .names = module.names(), .residency = module.residency()};
}

/// See dry_run. `shape`: the request's, with tile plans and parts of attention; `world`: of the request's rank.
template <class Watch, class MetaModel, class Sharding, class Optimizer>
Plan dry_run_on_meta(const MetaModel& meta, const Sharding& sharding, const RunShape& shape, const Request& request,
                     const comm::SimulatedWorld& world, const Optimizer& with) {
  const bool has_parts = request.purpose == Purpose::train &&
                         (sharding.calls.parts.size() > 1 || !meta.units().precision.patterns.empty());
  typename MetaModel::Stack::Comm communicator(world, {.record = has_parts || request.record != nullptr});
  ShardedModel<MetaModel> module(communicator, meta, sharding, shape, request.purpose);
  if (request.rank == most_loaded) {
    Plan most = largest_plan(request, ranks_to_try(module, request, with), [&](const Request& one) {
      comm::SimulatedWorld other = world;
      other.rank = one.rank;
      return dry_run_on_meta<Watch>(meta, sharding, shape, one, other, with);
    });
    most.same_on_all_ranks = loads_ranks_alike(module.group_list(), request.ranks, rows_of_ranks(request),
                                               state_bytes_of(module, request, with));
    return most;
  }
  StepRecorder recorder(request.record);
  if (request.record != nullptr) recorder.watch(watched(module));
  Executor<MetaModel> executor(module, recorder.observer());
  std::optional<typename Watch::template Of<MetaModel>> watch;
  if (request.purpose == Purpose::train) watch.emplace(module, executor, sharding.has_pieces);
  std::optional<CountExchange<typename MetaModel::Stack::Comm>> counts_of_training, counts_of_evaluation;
  if (request.purpose == Purpose::train) counts_of_training.emplace(communicator, module.ledger());
  if (request.purpose != Purpose::generate) counts_of_evaluation.emplace(communicator, module.ledger());

  using Batch = typename MetaModel::Batch;
  const StepSize& size = request.size();
  const auto batch_of = [&](std::int64_t sequences) {
    return module.model().unread_batch(sequences, size.sequence_length);
  };
  const Batch batch = batch_of(size.sequences);
  const std::int64_t least = size.fewer ? 1 : size.sequences;
  const auto for_each_load = [&](std::int64_t fewest, auto pass) {
    for (std::int64_t sequences = size.sequences; sequences >= fewest; --sequences)
      nn::for_each_load(batch_of(sequences), size.sequence_length, std::ref(pass));
  };
  // A smaller micro-batch is the first or the last of a step. The other micro-batches are full, which needs the most
  // memory for uploads.
  const auto train = [&](const Batch& one) {
    const bool full = one.sequences == size.sequences;
    std::vector<Batch> step(static_cast<std::size_t>(size.micro_batches), full ? one : batch);
    step.front() = one;
    executor.queue_training(step, 1.0f, size.verifies);
    if (full || step.size() == 1) return;
    step.front() = batch;
    step.back() = one;
    executor.queue_training(step, 1.0f);
  };
  const auto evaluate = [&](const Batch& one) { executor.evaluate(one); };
  constexpr bool generates = nn::GeneratingHead<typename MetaModel::Head, typename MetaModel::Local>;
  constexpr const char* no_logits = "the dry run: this model's head has no logits, so it cannot generate";
  const auto unbacked_logits = [&](std::int64_t rows) {
    using Compute = typename MetaModel::Stack::Precision::Compute;
    std::int64_t columns = 0;
    if constexpr (generates) {
      columns = module.model().head().logits_columns();
      require<InputError>(columns > 0, "model: its head has ", columns,
                          " columns of logits; logits_columns() is at least 1");
    }
    return device::unbacked<Compute>({rows, columns});
  };
  Plan result{.rank = request.rank, .residency = module.residency()};
  if (request.purpose == Purpose::train) {
    optim::ShardedOptimizer<typename ShardedModel<MetaModel>::Stack, Optimizer> optimizer(module, with);
    module.stream().counters.matmuls = request.matmuls;
    recorder.record_counts([&] {
      if (request.record != nullptr) counts_of_training->start([] { return BatchCounts{}; });
    });
    for_each_load(least, [&, counted = false](const Batch& one) mutable {
      recorder.set_active(!counted);
      train(one);
      recorder.set_active(false);
      if (std::exchange(counted, true)) return;
      result.work = module.stream().counters;
      result.work.matmuls = nullptr;
      module.stream().counters.matmuls = nullptr;
      if (has_parts) result.parts = plans_of_parts(module, optimizer);
    });
    recorder.record_optimizer([&] { optimizer.step(executor.loss(), {}); });
    watch->verify([&](auto pass) { for_each_load(size.sequences, pass); }, optimizer);
    executor.hooks().call(&Executor<MetaModel>::Hooks::after_pass);
    executor.hooks().call(&Executor<MetaModel>::Hooks::after_update);
    for_each_load(least, evaluate);
    if (size.logit_rows > 0) {
      if constexpr (generates) {
        const std::vector<std::int64_t> rows(static_cast<std::size_t>(size.logit_rows));
        for_each_load(size.sequences,
                      [&](const Batch& one) { executor.evaluate_logits(one, rows, unbacked_logits(size.logit_rows)); });
      } else {
        throw InputError(no_logits);
      }
    }
    result.bytes = module.peak_bytes();
  } else if (request.purpose == Purpose::evaluate) {
    for_each_load(least, evaluate);
    result.bytes = module.peak_bytes();
  } else if constexpr (generates) {
    if (size.logit_rows > 0) {
      const std::vector<std::int64_t> rows(static_cast<std::size_t>(size.logit_rows));
      executor.logits(batch, rows, unbacked_logits(size.logit_rows));
    } else {
      executor.logits(batch, unbacked_logits(request.rows()));
    }
    if constexpr (Executor<MetaModel>::continues)
      if (size.cached_rows > 0) {
        const auto last = static_cast<std::int32_t>(size.cached_rows / size.sequences - 1);
        const std::vector<std::int32_t> positions(static_cast<std::size_t>(size.sequences), last);
        executor.next_logits(module.model().unread_batch(size.sequences, 1), positions,
                             unbacked_logits(size.sequences));
      }
    result.bytes = module.peak_bytes();
  } else {
    throw InputError(no_logits);
  }
  result.communicators = used_communicators(module);
  result.plans = executor.plans();
  result.middle_parts = shape.size.middle_parts;
  result.activation_bytes = module.arena().peak();
  result.offloaded_activation_bytes = module.offload_arena().peak();
  result.offloaded_bytes = module.offloaded_bytes();
  return result;
}

}  // namespace detail

/// Runs the request's purpose on Meta and returns what it takes: a training step with its optimizer, then an evaluation
/// and the requested logits; or an evaluation; or generation. Every pass runs with all that a batch may carry
/// (nn::for_each_load). With StepSize::fewer, training and evaluation run for every number of sequences up to the
/// request's, since fewer sequences may be cut into longer tiles. `Watch`: WatchedSteps if steps may be digested or
/// verified; the dry runs that are compiled into the library always can.
template <class Model, class Optimizer = optim::RunTimeOptimizer, class Watch = UnwatchedSteps>
Plan dry_run(const Model& model, const typename Model::Stack::Sharding& sharding,
             const typename Model::Stack::Tiling& tiling, const Request& request, const Optimizer& with = {},
             const Watch& /*watch*/ = {}) {
  static_assert(optim::check_optimizer<Optimizer>());
  static_assert(optim::check_whole_tensors<Optimizer, typename Model::Stack::Sharding>());
  auto world = comm::simulated_world<typename Model::Stack::Comm>(request.ranks, std::max(request.rank, 0));
  if (request.scratch_bytes_for != nullptr) world.scratch_bytes_for = request.scratch_bytes_for;
  RunShape shape = request.shape;
  shape.plans = nn::shared_plans(nn::TilePlans(tiling));
  shape.size.middle_parts = SequencesOf<Model>::middle_parts(model, tiling, shape, request.rows());
  using Meta = MetaTwin<Model, Optimizer>;
  const auto meta_sharding = described<typename Model::Stack, typename Meta::Stack>(sharding);
  using Compiled = std::conditional_t<detail::MetaTwinOf<Model, Optimizer>::in_library, WatchedSteps, Watch>;
  return detail::dry_run_on_meta<Compiled>(Meta(model.config(), model.units()), meta_sharding, shape, request, world,
                                           with);
}

/// Returns the training pass of rank 0 of a request's ranks.
template <class Model>
PlannedSchedule planned_schedule(const Model& model, const typename Model::Stack::Sharding& sharding,
                                 const Request& request) {
  const auto meta_sharding = described<typename Model::Stack, typename MetaTwin<Model>::Stack>(sharding);
  return detail::schedule_on_meta(MetaTwin<Model>(model.config(), model.units()), meta_sharding, request.shape,
                                  request.ranks);
}

template <class Model>
std::string tiling_text(const Model& model, typename Model::Stack::Tiling tiling, const Request& request) {
  using MetaModel = MetaTwin<Model>;
  using Meta = typename MetaModel::Stack::Device;
  auto arena = Meta::Arena::unbounded();
  typename Meta::Stream stream(arena, request.shape.threads());
  const int sharing = request.size().ranks_per_sequence;  // the last rank that shares a sequence has the most rows
  const nn::RowRange rows = nn::rows_of_part(request.rows(), sharing - 1, sharing);
  nn::Context<typename MetaModel::Local> context{
      .arena = arena,
      .stream = stream,
      .plans = nn::shared_plans(nn::TilePlans(tiling)),
      .sequences = sharing == 1 ? request.size().sequences : 1,
      .sequence_length = sharing == 1 ? request.size().sequence_length : rows.end - rows.begin};
  const MetaModel meta(model.config(), model.units());
  std::string text, last;
  for (int i = 0; i < meta.blocks(); ++i)
    nn::visit_kind(meta.block(i), [&](const auto& block) {
      if constexpr (requires { block.plan(context); }) {
        const std::string plan = message(block.plan(context));
        if (plan != last)
          text += message("tiling: MLP of ", i == 0 ? "a block" : "block " + std::to_string(i), ", ", plan, "\n");
        last = plan;
      }
    });
  if constexpr (requires { meta.head().plan(context); })
    text += message("tiling: head, ", meta.head().plan(context), "\n");
  const int parts = SequencesOf<Model>::middle_parts(model, tiling, request.shape, request.rows());
  if (parts > 1) text += message("tiling: attention in ", parts, " parts\n");
  return text;
}

namespace detail {

/// The dry runs of a Llama on a device in a precision: `how` is `extern template` or `template`. src/fsdp/training/
/// compiles a precision per file, with and without a bf16 wire.
#define FSDP_META_LLAMA(how, Target, ...)                                \
  FSDP_META_LLAMA_OF(how, Target, buffer::Replicate, false, __VA_ARGS__) \
  FSDP_META_LLAMA_OF(how, Target, buffer::Replicate, true, __VA_ARGS__)  \
  FSDP_META_LLAMA_OF(how, Target, buffer::Shard, false, __VA_ARGS__)     \
  FSDP_META_LLAMA_OF(how, Target, buffer::Shard, true, __VA_ARGS__)
/// The same for one placement and memory of optimizer state.
#define FSDP_META_LLAMA_OF(how, Target, Across, offloads, ...)                                                   \
  how Plan dry_run_on_meta<WatchedSteps>(const MetaLlama<Target, Across, offloads, __VA_ARGS__>&,                \
                                         const MetaSharding<Across, offloads>&, const RunShape&, const Request&, \
                                         const comm::SimulatedWorld&, const optim::RunTimeOptimizer&);           \
  how PlannedSchedule schedule_on_meta(const MetaLlama<Target, Across, offloads, __VA_ARGS__>&,                  \
                                       const MetaSharding<Across, offloads>&, const RunShape&, int ranks);

FSDP_META_LLAMA(extern template, device::Cpu, Fp32)
FSDP_META_LLAMA(extern template, device::Cpu, Bf16Mixed)
FSDP_META_LLAMA(extern template, device::Cpu, Bf16Wire<Bf16Mixed>)
FSDP_META_LLAMA(extern template, device::Cuda, Fp32)
FSDP_META_LLAMA(extern template, device::Cuda, Bf16Mixed)
FSDP_META_LLAMA(extern template, device::Cuda, Bf16Wire<Bf16Mixed>)

}  // namespace detail

}  // namespace plan
}  // namespace fsdp
