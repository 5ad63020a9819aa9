// SPDX-License-Identifier: Apache-2.0
/// @file
/// The suite of an optimizer: the memory that an update may access, the values that it may depend on, and training over
/// ranks.
///
///     using namespace fsdp::testing;
///     INSTANTIATE_TYPED_TEST_SUITE_P(Mine, OptimizerSuite, mine::Lion);
///
/// The parameter is an optimizer with a default constructor, or a struct with `static std::vector<Optimizer>
/// optimizers()`, the values to test, and optionally `static constexpr double lr`, a learning rate other than 0.01.
/// Updates are tested in float and bf16 on the CPU, its dry run and the asynchronous test device; ranks train a small
/// Llama in fp32, whose stacks are compiled once, into the testing library, for all optimizers.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include <gtest/gtest.h>

#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/fsdp/device/meta.hpp>
#include <tessera/fsdp/optim/optimizer.hpp>
#include <tessera/fsdp/testing/optimizer_updates.hpp>
#include <tessera/fsdp/testing/report.hpp>
#include <tessera/fsdp/testing/results.hpp>

namespace fsdp::testing {
namespace detail {

FSDP_TESTED_VALUES(optimizers, optimizer, constants, Optimizer)

}  // namespace detail

/// @cond internal to the suite
/// An optimizer of any type that updates float weights on the CPU and its dry runs. A copy also copies the stored
/// optimizer.
class AnyOptimizer {
 public:
  template <class O>
  requires(!std::is_same_v<O, AnyOptimizer>) explicit AnyOptimizer(const O& optimizer)
      : name_(optimizer.name()),
        grain_(optimizer.grain()),
        states_([optimizer](const Parameter& parameter) -> std::span<const optim::StateSpec> {
          return optimizer.states(parameter);
        }),
        on_cpu_([optimizer](Cpu& stream, const Piece& piece, Decision decision) {
          optimizer.update(stream, piece, decision);
        }),
        on_meta_([optimizer](Meta& stream, const Piece& piece, Decision decision) {
          optimizer.update(stream, piece, decision);
        }),
        work_(optim::step_work(optimizer)) {}

  std::string_view name() const { return name_; }
  optim::Grain grain() const { return grain_; }
  std::span<const optim::StateSpec> states(const Parameter& parameter) const { return states_(parameter); }
  StepWork step_work() const { return work_; }

  using Cpu = device::Cpu::Stream;
  using Meta = device::Meta::Stream;
  using Piece = optim::Update<float>;
  using Decision = Tensor<const device::StepDecision>;
  void update(Cpu& stream, const Piece& piece, Decision decision) const { on_cpu_(stream, piece, decision); }
  void update(Meta& stream, const Piece& piece, Decision decision) const { on_meta_(stream, piece, decision); }

  template <class Self, class Visitor>
  static void visit(Self&, Visitor&&) {}  // the stored optimizer visits its own constants

 private:
  std::string name_;
  optim::Grain grain_;
  std::function<std::span<const optim::StateSpec>(const Parameter&)> states_;
  std::function<void(Cpu&, const Piece&, Decision)> on_cpu_;
  std::function<void(Meta&, const Piece&, Decision)> on_meta_;
  StepWork work_;
};

/// Checks that ranks that update shards get the results of ranks that update all parameters.
void check_optimizer_on_shards(const AnyOptimizer& optimizer, double lr = 1e-2);
/// Checks that one rank gets the results of three ranks, and that the optimizer learns.
void check_optimizer_learns(const AnyOptimizer& optimizer, double lr = 1e-2);
/// Checks that checkpoints contain the optimizer's full state.
void check_optimizer_resumes(const AnyOptimizer& optimizer, double lr = 1e-2);
/// Checks an offloaded optimizer, whose pieces are updated in chunks in host memory.
void check_optimizer_offloads(const AnyOptimizer& optimizer, double lr = 1e-2);
/// @endcond

/// The suite. Its parameter is an optimizer with a default constructor, or a struct with optimizers() and optionally
/// `lr`.
template <class Tested>
class OptimizerSuite : public detail::Tested_optimizers<Tested> {
 protected:
  using Optimizer = typename detail::Tested_optimizers<Tested>::Optimizer;
  static_assert(optim::check_optimizer<Optimizer>());

  /// Calls `check` with each optimizer of the suite and its learning rate.
  static void each_over_ranks(void (*check)(const AnyOptimizer&, double lr)) {
    each_value("optimizer", detail::optimizers_of<Tested>(),
               [&](const Optimizer& optimizer) { check(AnyOptimizer(optimizer), detail::lr_of<Tested>()); });
  }
};

FSDP_SUITE(OptimizerSuite, (NamesItselfAndItsStates, this->each(check_optimizer_names)),
           (StepsItsPieceAlone, this->each(check_optimizer_steps<float>), this->each(check_optimizer_steps<bf16>)),
           (StepsPiecesAsTheWhole, this->each(check_optimizer_cuts)),
           (ScalesItsGradient, this->each(check_optimizer_scale)),
           (IsCountedByDryRuns, this->each(check_optimizer_counts)),
           (IsReplayedByGraphs, this->each(check_optimizer_replays)),
           (StepsShardsAsTheWhole, this->each_over_ranks(check_optimizer_on_shards)),
           (Learns, this->each_over_ranks(check_optimizer_learns)),
           (GoesOnFromACheckpoint, this->each_over_ranks(check_optimizer_resumes)),
           (WorksInHostMemory, this->each_over_ranks(check_optimizer_offloads)));

}  // namespace fsdp::testing
