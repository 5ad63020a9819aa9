// SPDX-License-Identifier: Apache-2.0
/// @file
/// Trains with an optimizer over ranks. The stacks are compiled into the kit's library, once for all optimizers.
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

/// An optimizer of any type, which steps float weights on the CPU and its dry runs. Copies copy the held optimizer.
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
  static void visit(Self&, Visitor&&) {}  // its constants are the held optimizer's own

 private:
  std::string name_;
  optim::Grain grain_;
  std::function<std::span<const std::string_view>(const Parameter&)> states_;
  std::function<void(Cpu&, const Piece&, Decision)> on_cpu_;
  std::function<void(Meta&, const Piece&, Decision)> on_meta_;
  StepWork work_;
};

/// Where the optimizer's pieces are.
enum class OptimizerPlace : std::uint8_t {
  replicated,  ///< every rank steps everything
  sharded,     ///< FullyShard; with Grain::tensors on buffer::Owned, which keeps tensors whole
  offloaded,   ///< the same in host memory; only for Grain::elements
};

struct OptimizerRun {
  OptimizerPlace place = OptimizerPlace::sharded;
  StrategyCase how = {};
  int steps = 4;  ///< in total, including those before the checkpoint that it resumes from
  double lr = 1e-2;
  bool as_ranks = false;               ///< one rank takes, as micro-batches, the batches of as many ranks
  std::filesystem::path save_to = {};  ///< folder for a checkpoint after the last step
  std::filesystem::path resume = {};   ///< folder of a checkpoint to resume from
};

/// Trains. Rethrows the error of the first rank that failed.
RunResult train_with(const AnyOptimizer& optimizer, const OptimizerRun& run);

}  // namespace fsdp::testing
