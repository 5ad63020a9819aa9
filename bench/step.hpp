// SPDX-License-Identifier: Apache-2.0
/// @file
/// `tessera_bench step`: a whole training step of a stack, compared with its lower bound and with a hand-written loop.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

#include <tessera/comm/collectives.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/execution/count_exchange.hpp>
#include <tessera/fsdp/execution/executor.hpp>
#include <tessera/fsdp/module/host_weights.hpp>
#include <tessera/fsdp/nn/token_batch.hpp>
#include <tessera/fsdp/optim/sharded_optimizer.hpp>
#include <tessera/fsdp/plan/dry_run.hpp>
#include <tessera/fsdp/sharding/sequence.hpp>
#include <tessera/fsdp/training/launch.hpp>
#include <tessera/fsdp/training/run_time_optimizer.hpp>
#include <tessera/fsdp/training/training.hpp>
#include <tessera/trainer/flags/disk_deadline.hpp>

#include "../src/program/cli/stack_choice.hpp"
#include "bare_loop.hpp"
#include "comm.hpp"
#include "lines.hpp"
#include "options.hpp"
#include "step_bound.hpp"

namespace fsdp::bench {

/// Sums over the timed steps of one rank. The largest sum over all ranks is printed.
struct StepSums {
  double communication_seconds = 0, waiting_seconds = 0, copied_bytes = 0, allocations = 0, peak_bytes = 0;
};

/// The baseline of `step --sequence`: a step of the same sequences, each of them on a single rank. The first rank of
/// each group that shares a sequence computes it with the threads of all ranks of the group, while the others wait.
/// `RunT` is StepRun of a model.
template <class RunT>
class WholeStep {
 public:
  using Comm = typename RunT::Comm;
  using Tiling = typename RunT::Stack::Tiling;

  /// `group`: this rank's place in its group. `threads`: number of threads of each rank of the group. Collective.
  WholeStep(Comm& communicator, BenchOptions options, const Tiling& tiling, const SequenceGroup& group, int threads)
      : all_(communicator), communicator_(communicator.split(group.member)) {
    options.sequence = {};
    options.launch.threads = std::int64_t{group.size} * threads;
    if (group.member != 0) return;
    try {
      run_.emplace(communicator_, options, tiling);
    } catch (const InputError& error) {
      throw InputError(message("bench step: --sequence is compared with whole sequences on ", group.count, " of the ",
                               group.count * group.size, " ranks; ", error.what()));
    }
  }

  /// Runs a step, and returns when all groups have completed it. Since ranks wait for a whole step here, the time limit
  /// is longer than --deadline, which is meant for computation between collectives.
  void step() {
    constexpr double longest_seconds = 3600;
    train::with_disk_deadline(all_, longest_seconds, "bench step: whole sequences", [&] {
      if (run_) run_->step();
      comm::barrier(all_, {"bench"});
    });
  }
  /// Values on the first rank of a group; 0 on other ranks.
  /// @{
  std::int64_t activation_bytes() const { return run_ ? run_->activation_bytes() : 0; }
  double loss() const { return run_ ? run_->loss() : 0; }
  /// @}

 private:
  Comm& all_;
  Comm communicator_;
  std::optional<RunT> run_;
};

/// One rank's model, a batch of one sequence, and its step: the trainer's step without data and metrics. Ranks that
/// share a sequence (--sequence) have one batch together.
template <class Model>
class StepRun {
 public:
  using Stack = typename Model::Stack;
  using Comm = typename Stack::Comm;

  /// `adapters`: whether the model has the adapters that the options specify.
  StepRun(Comm& communicator, const BenchOptions& options, const typename Stack::Tiling& tiling, bool adapters = false,
          const UnitOptions& units = {})
      : communicator_(communicator),
        model_(step_model(options, adapters), units),
        sharding_(cli::sharding_of<typename Stack::Sharding>(options.stack.sharding)),
        with_(resolve(options.optimizer)),
        request_(request(communicator, options)),
        plan_(plan::dry_run(model_, sharding_, tiling, request_, with_)),
        tiling_(tiling),
        module_(communicator, model_, sharding_, train::planned_shape(request_, plan_)),
        optimizer_(module_, with_),
        executor_(module_, clock_.observer()),
        exchange_(communicator, module_.ledger()),
        tokens_(random_tokens(request_.size().sequence_length + 1, model_.config().vocab_size,
                              module_.sequence_group().index)) {
    optim::initialize(module_, 0);
    const std::int64_t tokens = request_.size().sequence_length;
    batch_ = {.tokens = {tokens_.data(), {tokens}}, .targets = {tokens_.data() + 1, {tokens}}, .sequences = 1};
  }

  static constexpr double lr = 1e-4;

  void step() {
    using Clock = std::chrono::steady_clock;
    const comm::Totals before = totals();
    const std::int64_t allocations = module_.ledger().allocations();
    exchange_.start([this] {
      const SequenceGroup group = module_.sequence_group();
      return nn::counts_of_part(batch_, group.member, group.size);
    });
    const std::int64_t targets = exchange_.finish().valid_targets;
    executor_.queue_training({&batch_, 1}, 1.0f / static_cast<float>(targets));
    const auto begin = Clock::now();
    optimizer_.step(executor_.loss(), {.lr = lr});
    const device::StepDecision& decision = optimizer_.control().decision();
    loss_ = decision.loss / static_cast<double>(targets);
    require<Error>(decision.stopped == 0, "bench: the step's loss is ", loss_);
    clock_.add_optimizer(std::chrono::duration<double>(Clock::now() - begin).count());
    const comm::Totals after = totals();
    sums_.communication_seconds += after.copy_seconds - before.copy_seconds;
    sums_.waiting_seconds += after.waiting_seconds - before.waiting_seconds;
    sums_.copied_bytes += static_cast<double>(after.copied_bytes - before.copied_bytes);
    sums_.allocations += static_cast<double>(module_.ledger().allocations() - allocations);
    if (steps_++ > 0) return;
    sums_ = {};  // the first step is the warm-up
    clock_.reset();
  }

  double peak_bytes() const {
    double sum = 0;
    for (const std::int64_t part : module_.peak_bytes()) sum += static_cast<double>(part);
    return sum;
  }

  std::int64_t activation_bytes() const { return plan_.activation_bytes; }
  double loss() const { return loss_; }  ///< loss of the last step

  /// Bytes of the slots for unsharded weights, and bytes that a step gathers.
  /// @{
  std::int64_t weight_slot_bytes() const {
    return module_.peak_bytes()[static_cast<std::size_t>(device::MemoryKind::gathered)];
  }
  std::int64_t gathered_bytes() const {
    std::int64_t bytes = 0;
    for (const sharding::Task& task : module_.schedule(sharding::Pass::train))
      if (task.action == sharding::Action::gather) bytes += module_.problem().group(task.index).weight_slot_bytes();
    return bytes;
  }
  /// @}

  /// Returns the output line of a step, with the times of the slowest rank.
  Line measure(const BenchOptions& options) {
    using Bare = BareLoop<typename Stack::Local::Precision>;
    std::optional<Bare> bare;
    double bare_loss = 0;
    Rounds rounds;
    const std::size_t step_case = rounds.add([this] { step(); });
    std::size_t bare_case = 0;
    if constexpr (std::is_same_v<typename Stack::Tiling, tiling::RunTimeTiling>)
      if (communicator_.size() == 1 && with_ == optim::RunTimeOptimizer{} &&
          options.model.empty()) {  // conditions under which the bare loop runs the same step
        bare.emplace(model_.config(), module_.shape());
        for (const auto& piece : module_.shards()) bare->set(piece.parameter->name, piece.begin, piece.main);
        bare_case = rounds.add([&] { bare_loss = bare->step(batch_, lr); });
      }
    std::optional<StepRun> lora;
    std::size_t lora_case = 0;
    if (options.lora_rank > 0) {
      lora.emplace(communicator_, options, tiling_, true);
      lora_case = rounds.add([&] { lora->step(); });
    }
    std::optional<StepRun> kept, offloaded;
    std::size_t kept_case = 0, offloaded_case = 0;
    if (options.offload_inputs > 0) {
      kept.emplace(communicator_, options, tiling_, false, UnitOptions{.recompute = true});
      kept_case = rounds.add([&] { kept->step(); });
      offloaded.emplace(communicator_, options, tiling_, false,
                        UnitOptions{.recompute = true, .offload_inputs = options.offload_inputs});
      offloaded_case = rounds.add([&] { offloaded->step(); });
    }
    std::optional<WholeStep<StepRun>> whole;
    std::size_t whole_case = 0;
    if (options.sequence.ranks > 1) {
      whole.emplace(communicator_, options, tiling_, module_.sequence_group(), request_.shape.threads());
      whole_case = rounds.add([&] { whole->step(); });
    }
    StepBound bound(work());
    bound.add_to(rounds);
    run_rounds(communicator_, rounds, options.repeats);

    sums_.peak_bytes = peak_bytes();
    auto sums = std::bit_cast<std::array<double, sizeof(StepSums) / sizeof(double)>>(sums_);
    auto phases = std::bit_cast<std::array<double, sizeof(StepPhases) / sizeof(double)>>(clock_.sums());
    comm::reduce(communicator_, std::span<double>(sums), comm::Reduction::max, {"bench"});
    comm::reduce(communicator_, std::span<double>(phases), comm::Reduction::max, {"bench"});
    const auto slowest = std::bit_cast<StepSums>(sums);
    const auto steps = static_cast<double>(options.repeats);
    for (double& phase : phases) phase /= steps;
    const auto slowest_phases = std::bit_cast<StepPhases>(phases);
    const double seconds = rounds.median_seconds(step_case), step_ms = seconds * 1e3;
    const double communication_ms = slowest.communication_seconds / steps * 1e3;
    const auto tokens = static_cast<double>(module_.sequence_group().count * request_.size().sequence_length);
    Line line("step");
    line.add("stack", Stack::name(sharding_))
        .add("tiling", options.stack.tiling.text(), "optimizer", with_.name(), "ranks", communicator_.size())
        .add("threads", request_.shape.threads(), "parameters", parameter_count(model_))
        .add("seq", request_.size().sequence_length, "sequence", options.sequence.text())
        .add("tokens_per_second", tokens / seconds, "step_ms", step_ms)
        .add("floor_ms", 1e3 * rounds.median_of([&](std::size_t round) { return bound.seconds(rounds, round); }))
        .add("ratio", rounds.median_of([&](std::size_t round) {
          return rounds.seconds(step_case, round) / bound.seconds(rounds, round);
        }))
        .add("communication_ms", communication_ms, "communication_share", communication_ms / step_ms)
        .add("waiting_ms", slowest.waiting_seconds / steps * 1e3)
        .add("copied_bytes", static_cast<std::int64_t>(slowest.copied_bytes / steps))
        .add("allocations", static_cast<std::int64_t>(slowest.allocations))
        .add("peak_bytes", static_cast<std::int64_t>(slowest.peak_bytes))
        .add_exact("loss", loss_);
    bound.add_parts(line, rounds);
    line.add("forward_ms", slowest_phases.forward_ms)
        .add("loss_ms", slowest_phases.loss_ms, "backward_ms", slowest_phases.backward_ms)
        .add("exchange_ms", slowest_phases.exchange_ms, "optimizer_ms", slowest_phases.optimizer_ms)
        .add("owners_balance", owners_balance());
    if (bare)
      line.add("bare_loop_ms", 1e3 * rounds.median_seconds(bare_case))
          .add("ratio_to_bare_loop", rounds.median_ratio(step_case, bare_case))
          .add_exact("bare_loop_loss", bare_loss);
    if (lora)
      line.add("lora_ms", 1e3 * rounds.median_seconds(lora_case))
          .add("lora_time_ratio", rounds.median_ratio(lora_case, step_case))
          .add("lora_memory_ratio", lora->peak_bytes() / peak_bytes());
    if (offloaded)
      line.add("recomputed_ms", 1e3 * rounds.median_seconds(kept_case))
          .add("offloaded_ms", 1e3 * rounds.median_seconds(offloaded_case))
          .add("offloaded_time_ratio", rounds.median_ratio(offloaded_case, kept_case))
          .add("offloaded_memory_ratio", offloaded->peak_bytes() / kept->peak_bytes())
          .add("offloaded_host_bytes", offloaded->plan_.offloaded_bytes);
    if (whole)
      line.add("whole_ms", 1e3 * rounds.median_seconds(whole_case))
          .add("whole_time_ratio", rounds.median_ratio(step_case, whole_case))
          .add("activation_bytes", activation_bytes(), "whole_activation_bytes", whole->activation_bytes())
          .add_exact("whole_loss", whole->loss());
    return line;
  }

 private:
  static constexpr bool rounds_weights = !ShardedModel<Model>::Group::one_copy;

  /// Returns the sum of the totals of the world communicator and, on a mesh of two axes, of both axes.
  comm::Totals totals() {
    comm::Totals sum;
    for (Comm* communicator : module_.communicators()) {
      const comm::Totals& own = communicator->monitor().totals;
      sum.copy_seconds += own.copy_seconds;
      sum.waiting_seconds += own.waiting_seconds;
      sum.copied_bytes += own.copied_bytes;
    }
    return sum;
  }

  plan::Request request(const Comm& communicator, const BenchOptions& options) {
    plan::Request request = train::plan_request({.sequence_length = options.seq_len > 0 ? options.seq_len : 2048,
                                                 .ranks_per_sequence = options.sequence.ranks,
                                                 .middle_parts = options.sequence.parts,
                                                 .threads = static_cast<int>(options.launch.threads)},
                                                communicator.size(), communicator.rank());
    request.shape.step_work = with_.step_work();
    request.matmuls = &matmuls_;
    return request;
  }
  /// Returns the largest optimizer cost of a rank divided by the mean; empty for optimizers that do not need whole
  /// tensors.
  std::optional<double> owners_balance() const {
    if (with_.grain() == optim::Grain::elements) return std::nullopt;
    std::vector<double> work(static_cast<std::size_t>(communicator_.size()), 0.0);
    for (const auto& group : module_.groups()) {
      if (!group.facts().trainable) continue;
      for (std::size_t rank = 0; rank < work.size(); ++rank) {
        const auto shards = group.layout().local_sizes.size();
        for (const buffer::TensorRange& range : group.layout().ranges(static_cast<int>(rank % shards)))
          work[rank] +=
              static_cast<double>(with_.step_work()(group.parameters()[static_cast<std::size_t>(range.tensor)]));
      }
    }
    const double sum = std::accumulate(work.begin(), work.end(), 0.0);
    return *std::max_element(work.begin(), work.end()) * static_cast<double>(work.size()) / sum;
  }
  /// Returns the minimum memory traffic of the optimizer's step: each state is read and written once. Excludes Muon's
  /// matmuls.
  std::int64_t optimizer_bytes() const {
    std::int64_t bytes = 0;
    for (const auto& piece : module_.shards())
      if (piece.trainable)
        bytes += piece.main.numel() * ((rounds_weights ? 14 : 12) + 8 * std::ssize(optimizer_.specs(piece)));
    return bytes;
  }
  StepWork work() const {
    return {.matmuls = matmuls_,
            .attention_flops = plan_.work.attention_flops,
            .elementwise_bytes = plan_.work.elementwise_bytes,
            .optimizer_bytes = optimizer_bytes(),
            .activation_bytes = plan_.activation_bytes,
            .compute = dtype_of<typename Stack::Precision::Compute>(),
            .threads = request_.shape.threads()};
  }

  Comm& communicator_;
  Model model_;
  typename Stack::Sharding sharding_;
  std::vector<device::MatmulRecord> matmuls_;
  optim::RunTimeOptimizer with_;
  plan::Request request_;
  plan::Plan plan_;
  typename Stack::Tiling tiling_;
  ShardedModel<Model> module_;
  optim::ShardedOptimizer<typename ShardedModel<Model>::Stack, optim::RunTimeOptimizer> optimizer_;
  PhaseClock clock_;
  Executor<Model> executor_;
  CountExchange<Comm> exchange_;
  std::vector<std::int32_t> tokens_;
  TokenBatch batch_;
  StepSums sums_;
  std::int64_t steps_ = 0;
  double loss_ = 0;
};

template <class Model>
int measure_step(const BenchOptions& options) {
  using Comm = typename Model::Stack::Comm;
  const typename Model::Stack::Tiling& tiling = cli::known_tiling(options.stack.tiling);
  return train::launch<Comm>(options.launch, [&](Comm& communicator) {
    StepRun<Model> run(communicator, options, tiling);
    const Line line = run.measure(options);
    if (communicator.rank() == 0) line.print();
  });
}

}  // namespace fsdp::bench
