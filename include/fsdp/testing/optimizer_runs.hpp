// SPDX-License-Identifier: Apache-2.0
/// @file
/// Trains with an optimizer over ranks. The stacks are compiled once, into the testing library, for all optimizers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/fsdp/device/meta.hpp>
#include <tessera/fsdp/optim/optimizer.hpp>
#include <tessera/fsdp/testing/results.hpp>
#include <tessera/fsdp/testing/strategy_loop.hpp>

namespace fsdp::testing {

/// An optimizer of any type that updates float weights on the CPU and its dry runs. A copy also copies the stored
/// optimizer.
class AnyOptimizer {
 public:
  template <class O>
  requires(!std::is_same_v<O, AnyOptimizer>) explicit AnyOptimizer(const O& optimizer)
      : name_(optimizer.name()),
        grain_(optimizer.grain()),
        states_([optimizer](const Parameter& parameter) -> std::span<const std::string_view> {
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
  std::span<const std::string_view> states(const Parameter& parameter) const { return states_(parameter); }
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
  std::function<std::span<const std::string_view>(const Parameter&)> states_;
  std::function<void(Cpu&, const Piece&, Decision)> on_cpu_;
  std::function<void(Meta&, const Piece&, Decision)> on_meta_;
  StepWork work_;
};

enum class OptimizerPlace : std::uint8_t {
  replicated,  ///< every rank updates all parameters
  sharded,     ///< FullyShard; Grain::tensors uses buffer::Owned, which does not split tensors
  offloaded,   ///< sharded, in host memory; only for Grain::elements
};

struct OptimizerRun {
  OptimizerPlace place = OptimizerPlace::sharded;
  StrategyCase how = {};
  int steps = 4;  ///< total number of steps, including those before the checkpoint from which the run resumes
  double lr = 1e-2;
  bool as_ranks = false;               ///< whether one rank uses the batches of several ranks as its micro-batches
  std::filesystem::path save_to = {};  ///< folder for a checkpoint after the last step; empty: none
  std::filesystem::path resume = {};   ///< folder of the checkpoint from which to resume; empty: none
};

/// Trains. Rethrows the error of the first rank that failed.
RunResult train_with(const AnyOptimizer& optimizer, const OptimizerRun& run);

}  // namespace fsdp::testing
