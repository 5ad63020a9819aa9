// SPDX-License-Identifier: Apache-2.0
/// @file
/// The implementation of tests/support/stack_runner.hpp for one stack. Only tests/support/stacks/ includes it, because
/// it compiles slowly.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/comm/collectives.hpp>
#include <tessera/fsdp/checkpoint/folder.hpp>
#include <tessera/fsdp/checkpoint/shards_io.hpp>
#include <tessera/fsdp/core/function_ref.hpp>
#include <tessera/fsdp/core/has_member.hpp>
#include <tessera/fsdp/device/host_memory.hpp>
#include <tessera/fsdp/execution/count_exchange.hpp>
#include <tessera/fsdp/execution/executor.hpp>
#include <tessera/fsdp/execution/instances.hpp>
#include <tessera/fsdp/execution/training_step.hpp>
#include <tessera/fsdp/model_files/load.hpp>
#include <tessera/fsdp/models/llama.hpp>
#include <tessera/fsdp/module/host_weights.hpp>
#include <tessera/fsdp/optim/sharded_optimizer.hpp>
#include <tessera/fsdp/plan/dry_run.hpp>
#include <tessera/fsdp/sharding/run_time.hpp>
#include <tessera/fsdp/testing/memory_watch.hpp>
#include <tessera/fsdp/training/run_time_optimizer.hpp>
#include <tessera/fsdp/training/training.hpp>
#include <tessera/fsdp/verification/verification.hpp>

#include <support/batch_memory.hpp>
#include <support/bit_flips.hpp>
#include <support/listed_llama.hpp>
#include <support/rank_results.hpp>
#include <support/stack_runner.hpp>
#include <support/steps_ahead.hpp>

namespace fsdp::test {

/// Whether checkpoints can be read and written: they need JSON, which bench/gpu may lack.
#ifdef TESSERA_TEST_WITHOUT_CHECKPOINTS
inline constexpr bool has_checkpoints = false;
#else
inline constexpr bool has_checkpoints = true;
#endif

/// A fake device that checks every access (fsdp/testing/queued).
template <class Device>
concept ChecksAccesses = requires {
  Device::take_races();
};

/// Assembles whole tensors from view(index of a piece) on every rank; zero for parameters without
/// `has(parameter, trainable)`. Each element must have one owner and be the same in every replica.
template <class Types>
Values collect(ModuleMemory<Types>& module, const std::vector<Parameter>& parameters,
               FunctionRef<Tensor<const float>(std::size_t)> view, FunctionRef<bool(const Parameter&, bool)> has) {
  HeldTensors held(parameters, module, has);
  for (std::size_t index = 0; index < module.shards().size(); ++index) {
    const auto& piece = module.shards()[index];
    if (!has(*piece.parameter, piece.trainable)) continue;
    device::OnHost<typename ModuleMemory<Types>::Device, const float> host(module.stream(), view(index));
    held.add(piece.parameter->name, piece.begin, piece.owned, host.values().data(), host.values().numel());
  }
  return held.whole(module.communicator());
}
template <class Types>
Values collect_weights(ModuleMemory<Types>& module, const std::vector<Parameter>& parameters) {
  return collect(
      module, parameters, [&](std::size_t piece) { return module.shards()[piece].main; },
      [](const Parameter&, bool) { return true; });
}
template <class Types>
Values collect_gradients(ModuleMemory<Types>& module, const std::vector<Parameter>& parameters) {
  return collect(
      module, parameters, [&](std::size_t piece) { return module.shards()[piece].gradient; },
      [](const Parameter&, bool trainable) { return trainable; });
}
/// All states of an optimizer, as "parameter.state".
template <class Types>
Values collect_states(ModuleMemory<Types>& module, const std::vector<Parameter>& parameters,
                      const optim::ShardedStates<Types>& held, const optim::RunTimeOptimizer& optimizer) {
  Values states;
  std::size_t most = 0;
  for (const Parameter& parameter : parameters) most = std::max(most, optimizer.states(parameter).size());
  for (std::size_t state = 0; state < most; ++state) {
    const Values found = collect(
        module, parameters, [&](std::size_t piece) { return held.states(piece)[state].template as<float>(); },
        [&](const Parameter& parameter, bool trainable) {
          return trainable && optimizer.states(parameter).size() > state;
        });
    for (const Parameter& parameter : parameters)
      if (const auto specs = optimizer.states(parameter); specs.size() > state)
        add_state(states, parameter.name, specs[state].name, found);
  }
  return states;
}

template <class Model>
void begin(ShardedModel<Model>& module, const RunOptions& options) {
  if (options.model.empty())
    optim::initialize(module, options.seed);
  else if constexpr (has_checkpoints)
    train::load_weights(module, checkpoint::open_model<ListedLlama>(options.model));
}

/// The strategy that the options specify.
template <class Sharding>
Sharding strategy_of(const RunOptions& options) {
  std::optional<Sharding> strategy = Sharding{};
  if (!options.sharding.empty()) strategy = read_strategy<Sharding>(options.sharding);
  require<InputError>(strategy.has_value(), "no stack of the tests is called '", options.sharding, "'");
  if constexpr (requires { strategy->other_layout; })
    strategy->other_layout = options.layout;
  else if constexpr (requires { strategy->policy = *options.layout; })
    strategy->policy = options.layout.value_or(strategy->policy);
  else if constexpr (requires { strategy->inner.other_layout; })
    strategy->inner.other_layout = options.layout;
  if constexpr (requires { strategy->units; })
    for (const PartOptions& part : options.parts) {
      auto own = read_strategy<RunTimeAny>(part.sharding).value();
      own.other_layout = part.layout;
      strategy->units.push_back(part_of(on(part.pattern, own)));
    }
  return *strategy;
}

/// Adds the logits of each window from a module that stays unsharded: of its first `begun` tokens at once, then of one
/// token at a time. Every second window has targets, which must not be read.
template <class Model>
void add_logits(typename Model::Stack::Comm& communicator, const RunOptions& options, std::int64_t begun,
                std::vector<std::vector<float>>& all) {
  using Compute = typename Model::Stack::Precision::Compute;
  const Model model(options.config, options.units);
  const auto sharding = strategy_of<typename Model::Stack::Sharding>(options);
  plan::Request request{.ranks = communicator.size(),
                        .rank = communicator.rank(),
                        .shape = {.size = {.sequence_length = begun}},
                        .purpose = Purpose::generate};
  if (begun < options.sequence_length) request.shape.size.cached_rows = options.sequence_length;
  const plan::Plan plan = plan::dry_run(model, sharding, options.tiling, request);
  ShardedModel<Model> module(communicator, model, sharding, train::planned_shape(request, plan), Purpose::generate);
  Executor<Model> executor(module);
  begin(module, options);
  const std::int64_t vocabulary = options.config.vocab_size;
  for (const Window& window : options.logits_of) {
    const bool has_targets = all.size() % 2 == 1;
    const auto batch = [&](std::int64_t begin, std::int64_t end) {
      TokenBatch part{.tokens = {window.tokens.data() + begin, {end - begin}}, .targets = {}, .sequences = 1};
      if (has_targets) part.targets = {window.targets.data() + begin, {end - begin}};
      return part;
    };
    std::vector<Compute> out(window.tokens.size() * static_cast<std::size_t>(vocabulary));
    executor.logits(batch(0, begun), {out.data(), {begun, vocabulary}});
    if constexpr (Executor<Model>::continues)
      for (auto at = static_cast<std::int32_t>(begun); at < std::ssize(window.tokens); ++at)
        executor.next_logits(batch(at, at + 1), {&at, 1}, {out.data() + at * vocabulary, {1, vocabulary}});
    std::copy(out.begin(), out.end(), add_list(all, out.size()));
  }
  EXPECT_EQ(module.arena().peak(), plan.activation_bytes);
  EXPECT_EQ(module.peak_bytes(), plan.bytes);
}

template <class Model>
using TestOptimizer = optim::ShardedOptimizer<typename ShardedModel<Model>::Stack, optim::RunTimeOptimizer>;

template <class Model>
void save(ShardedModel<Model>& module, const TestOptimizer<Model>& optimizer, const RunOptions& options) {
  auto& communicator = module.communicator();
  checkpoint::Save save(options.save_to, optimizer.steps(), 1, listing_of(options.config),
                        train::states_of(module, optimizer.optimizer()));
  const checkpoint::TrainerState state{.step = optimizer.steps(),
                                       .seed = options.seed,
                                       .windows = 1,
                                       .seq_len = options.sequence_length,
                                       .schedule_steps = options.steps};
  checkpoint::save(save, communicator, state,
                   [&](checkpoint::Save& file) { train::write_shards(module, optimizer, file); });
}

/// Runs one rank and fills in its results. `watches`: whether the stack can digest and verify steps.
template <class Model, bool watches = false>
void run_on_rank(typename Model::Stack::Comm& communicator, const RunOptions& options, RunResults& results) {
  const auto sum = [&](double value) { return comm::sum_over_ranks(communicator, value, {"test"}); };
  const int rank = communicator.rank();
  communicator.monitor().options.before = options.before;
  const bool uses_checkpoints = !options.model.empty() || !options.resume.empty() || !options.save_to.empty();
  require<InputError>(has_checkpoints || !uses_checkpoints, "this test needs checkpoints, and was built without JSON");
  require<InputError>(watches || !(options.digests || options.verifies), "this stack of the tests has no digests");
  const Model model(options.config, options.units);
  const auto sharding = strategy_of<typename Model::Stack::Sharding>(options);
  plan::Request request{.ranks = communicator.size(),
                        .rank = rank,
                        .shape = {.size = {.sequences = options.most_sequences,
                                           .fewer = options.fewer_sequences,
                                           .sequence_length = options.sequence_length,
                                           .ranks_per_sequence = options.ranks_per_sequence,
                                           .middle_parts = options.middle_parts,
                                           .micro_batches = options.micro_batches,
                                           .digests = options.digests,
                                           .verifies = options.verifies},
                                  .step_work = optim::step_work(options.optimizer)}};
  const plan::Plan plan = plan::dry_run(model, sharding, options.tiling, request, options.optimizer, WatchedSteps());
  ShardedModel<Model> module(communicator, model, sharding, train::planned_shape(request, plan));
  TestOptimizer<Model> optimizer(module, options.optimizer, {.clip = options.clip});
  testing::MemoryWatch<Model> watch(module);
  BitFlips flips(module, optimizer, options.flip, watch.observer());
  Executor<Model> executor(module, flips.observer());
  [[maybe_unused]] OnlyIf<watches, std::optional<StepWatch<Model>>> step_watch;
  if constexpr (watches)
    if (options.digests || options.verifies) step_watch.emplace(module, executor);
  constexpr bool may_verify = watches && StepWatch<Model>::may_verify;
  [[maybe_unused]] OnlyIf<may_verify, std::optional<Verification<Model>>> verification;
  if constexpr (may_verify)
    if (options.verifies) verification.emplace(module, executor, *step_watch);
  [[maybe_unused]] OnlyIf<may_verify, std::optional<RestingDigests<Model, TestOptimizer<Model>>>> resting;
  if constexpr (may_verify)
    if (options.verifies) resting.emplace(module, optimizer);
  if (options.nan_in_padding) watch.fill_gradients_with_nan();
  if (options.resume.empty())
    begin(module, options);
  else if constexpr (has_checkpoints)
    train::restore(module, optimizer,
                   checkpoint::Checkpoint::open(options.resume, checkpoint::read_listing<ListedLlama>));

  results.parts = plan.parts;
  results.schedule = module.schedule(sharding::Pass::train);
  for (auto* axis : module.communicators()) results.communicators.push_back(axis->size());
  Memory& memory = results.memory.front();
  memory.planned = plan.bytes;
  memory.planned_activations = plan.activation_bytes;
  const std::vector<Parameter> parameters = parameter_list(ListedLlama(options.config, options.units));
  CountExchange<typename Model::Stack::Comm> exchange(communicator, module.ledger());
  const auto evaluate = [&] {
    if (options.evaluated.empty()) return 0.0;
    watch.set_training(false);
    double loss = 0, valid = 0;
    const auto at_once = static_cast<std::size_t>(options.fewer_sequences ? 1 : options.most_sequences);
    for (std::size_t begin = 0; begin < options.evaluated.size(); begin += at_once) {
      BatchMemory batch;
      const TokenBatch one = batch.add(std::span(options.evaluated).subspan(begin, at_once));
      const SequenceGroup group = module.sequence_group();
      exchange.start([&] { return nn::counts_of_part(one, group.member, group.size); });
      loss += executor.evaluate(one);
      valid += static_cast<double>(exchange.finish().valid_targets);
    }
    return sum(loss) / valid;
  };
  if (options.collects) results.initial = collect_weights(module, parameters);
  results.first_evaluation = evaluate();

  StepsAhead ahead(module, options);
  optim::TrainingStep<Model, optim::RunTimeOptimizer> graphs(module, executor, optimizer, options.graphs);
  const auto read_oldest = [&] {
    const double targets = ahead.release_oldest();
    const device::StepDecision& decision = optimizer.control().decision(ahead.steps() - 1);
    if (!options.check_only) {
      results.losses.push_back(decision.loss / targets);
      results.norms.push_back(decision.norm);
    }
    ahead.forget_oldest();
  };
  while (optimizer.steps() < options.steps) {
    const auto copied_bytes = [&] {
      std::int64_t bytes = 0;
      for (auto* axis : module.communicators()) bytes += axis->monitor().totals.copied_bytes;
      return bytes;
    };
    const auto micro_batches = ahead.begin_step(optimizer.steps());
    for (auto* axis : module.communicators()) axis->monitor().records.clear();
    const std::int64_t copied = copied_bytes();
    const comm::MeshTraffic before = module.traffic();
    watch.set_training(true);
    if constexpr (ChecksAccesses<typename Model::Stack::Device>)
      if (optimizer.steps() == 1) Model::Stack::Device::Queue::forget_points();
    const float scale = 1.0f / static_cast<float>(ahead.targets());
    const std::int64_t step = optimizer.steps() + 1;
    flips.begin_step(step);
    if (options.graphs)
      graphs.queue(micro_batches, scale, {.lr = options.lr}, true);
    else
      executor.queue_training(micro_batches, scale, options.verifies);
    if (memory.copied_bytes == 0) memory.copied_bytes = copied_bytes() - copied;
    copy_records(results.records, communicator.monitor());
    if (const auto axes = module.communicators(); axes.size() == 3) {
      copy_records(results.across_records, axes[1]->monitor());
      copy_records(results.inner_records, axes[2]->monitor());
    }
    if (options.collects && !options.graphs && results.gradients.empty())
      results.gradients = collect_gradients(module, parameters);
    BatchMemory pieces;
    if constexpr (may_verify) {
      if (resting) resting->compare(step - 1);
      const auto batch_of = [&](int piece) {
        return pieces.add(options.batch, {.step = static_cast<int>(step - 1),
                                          .rank = piece % communicator.size(),
                                          .ranks = communicator.size(),
                                          .micro_batch = piece / communicator.size(),
                                          .micro_batches = options.micro_batches,
                                          .fixed_pieces = module.step_pieces()});
      };
      if (verification) verification->verify(step, scale, batch_of);
    }
    if (!options.graphs) {
      executor.hooks().call(&Executor<Model>::Hooks::after_pass);
      optimizer.step(executor.loss(), {.lr = options.lr});
      executor.hooks().call(&Executor<Model>::Hooks::after_update);
    }
    add_traffic(results, module.traffic(), before);
    if constexpr (may_verify)
      if (resting) resting->keep();
    if constexpr (watches)
      if (options.digests) add_digests(results, step_watch->steps()->collect());
    if (!options.reads_late || ahead.steps() > 1) read_oldest();
    if (memory.allocations_after_first_step == 0) memory.allocations_after_first_step = module.ledger().allocations();
  }
  while (ahead.steps() > 0) read_oldest();
  results.captured = graphs.captured();
  results.launched = graphs.launched();
  results.last_evaluation = evaluate();
  module.synchronize();

  if (options.collects) {
    results.weights = collect_weights(module, parameters);
    results.states = collect_states(module, parameters, optimizer, options.optimizer);
  }
  memory.used = module.peak_bytes();
  memory.used_activations = module.arena().peak();
  memory.planned_offload = plan.offloaded_bytes;
  memory.used_offload = module.offloaded_bytes();
  memory.allocations_at_end = module.ledger().allocations();
  memory.weight_slots = watch.weight_slots();
  memory.gradient_slots = watch.gradient_slots();
  memory.views_checked = watch.checked();
  if constexpr (has_checkpoints)
    if (!options.save_to.empty()) save(module, optimizer, options);
  if (!options.logits_of.empty()) {
    communicator.monitor().records.clear();
    add_logits<Model>(communicator, options, options.sequence_length, results.logits);
    copy_generating_records(results.generating_records, communicator.monitor());
    if (options.begun > 0) add_logits<Model>(communicator, options, options.begun, results.continued_logits);
  }
}

/// Runs options.ranks ranks as threads. Their losses and norms must be bit-identical.
template <class Comm>
RunResults run_ranks(const RunOptions& options, FunctionRef<void(Comm&, RunResults&)> run_rank) {
  constexpr bool checks_accesses = ChecksAccesses<typename Comm::Device>;
  if constexpr (checks_accesses) Comm::Device::Queue::check_only(options.check_only);
  RankResults ranks(options.ranks);
  const comm::Options limits{.deadline = options.deadline, .start_deadline = options.deadline, .record = true};
  Comm::run(options.ranks, limits, [&](Comm& communicator) {
    if constexpr (requires { communicator.steps_on_own_gradients; })
      communicator.steps_on_own_gradients = options.steps_on_own_gradients;
    RunResults& results = ranks.of(communicator.rank());
    if constexpr (checks_accesses)
      Comm::Device::Queue::leave_out(communicator.rank() == 0 ? options.leave_out : std::vector<std::int64_t>{});
    run_rank(communicator, results);
    if constexpr (checks_accesses) results.points = Comm::Device::Queue::points();
  });
  RunResults results = ranks.merged();
  if constexpr (checks_accesses) results.races = Comm::Device::take_races();
  return results;
}
template <class Model, bool watches = false>
RunResults run_threads(const RunOptions& options) {
  return run_ranks<typename Model::Stack::Comm>(options, [&](auto& communicator, RunResults& results) {
    run_on_rank<Model, watches>(communicator, options, results);
  });
}

}  // namespace fsdp::test
