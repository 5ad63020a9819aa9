// SPDX-License-Identifier: Apache-2.0
/// @file
/// A whole training step: enqueued operation by operation or, for uniform steps, launched as one graph.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <tessera/comm/collectives.hpp>
#include <tessera/comm/monitor.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/policy_text.hpp>
#include <tessera/fsdp/device/device.hpp>
#include <tessera/fsdp/device/operations/optimizer.hpp>
#include <tessera/fsdp/execution/executor.hpp>
#include <tessera/fsdp/optim/sharded_optimizer.hpp>

namespace fsdp::optim {
namespace detail {

/// The captured step of a device with graph capture.
template <class Device, class Pattern>
struct Captured {};
template <device::Captures Device, class Pattern>
struct Captured<Device, Pattern> {
  typename Device::Graph graph;
  std::vector<Pattern> patterns;                                  ///< [micro_batches]
  std::vector<std::pair<comm::Monitor*, comm::Traffic>> traffic;  ///< traffic of one launch, by communicator
};

}  // namespace detail

/// A training step: forward, backward and the optimizer. With `graphs`, the second of two consecutive uniform steps
/// (`alike`, see `queue`) is captured, and it and later uniform steps replay the graph: a step is then a few copies and
/// one launch. Results are bit-identical.
template <class Model, class OptimizerT = RunTimeOptimizer>
class TrainingStep {
 public:
  using Module = ShardedModel<Model>;
  using Optimizer = ShardedOptimizer<typename Module::Stack, OptimizerT>;
  using Device = typename Module::Device;
  using Batch = typename Model::Batch;

  /// The arguments must outlive it. Throws InputError if `graphs` is set but the device has no graph capture, or the
  /// communicator's collectives need the host.
  TrainingStep(Module& module, Executor<Model>& executor, Optimizer& optimizer, bool graphs)
      : module_(module), executor_(executor), optimizer_(optimizer), graphs_(graphs) {
    if (!graphs) return;
    require<InputError>(device::Captures<Device>, "CUDA graphs (--cuda-graphs) are asked for, and this stack runs on ",
                        Device::name, "; leave them out, or take a stack on Cuda (--comm nccl)");
    for (auto* axis : module.communicators())
      require<InputError>(comm::can_be_captured(*axis),
                          "CUDA graphs (--cuda-graphs) are asked for, and a graph keeps no collectives of ",
                          policy_text<typename Model::Stack::Comm>(), " between ", axis->size(),
                          " ranks, in which their hosts take part; leave them out, or take Nccl");
  }

  /// Enqueues a step. The batches' memory must stay valid until the device has read it. `alike`: whether this step is
  /// uniform: its micro-batches have no documents, and have the same sizes and ignored targets as the micro-batches of
  /// all other uniform steps. It must be the same on all ranks, which capture and launch together. Since a graph
  /// replays the captured step's dropout, pass false for a model with dropout. `before_update`: called between the pass
  /// and the optimizer; such a step is not captured, and its first micro-batch is digested if the module is planned to
  /// verify.
  void queue(std::span<const Batch> micro_batches, float scale, const device::StepInputs& inputs, bool alike,
             const std::function<void()>& before_update = {}) {
    const auto uploaded = executor_.upload(micro_batches);
    optimizer_.control().begin(inputs);
    if constexpr (device::Captures<Device>) {
      if (graphs_ && alike && !before_update) {
        require_alike(micro_batches);
        launch(uploaded, scale);
      } else {
        enqueue(uploaded, scale, before_update);
      }
      last_ = alike ? std::optional(scale) : std::nullopt;
    } else {
      enqueue(uploaded, scale, before_update);
    }
    optimizer_.control().end();
  }

  /// Return the number of steps that were captured, and the number of steps that were launched as a graph.
  /// @{
  std::int64_t captured() const { return captured_; }
  std::int64_t launched() const { return launched_; }
  /// @}

 private:
  using UploadedBatches = typename Executor<Model>::UploadedBatches;
  using Pattern = decltype(std::declval<const Batch&>().pattern());

  void enqueue(const UploadedBatches& micro_batches, float scale, const std::function<void()>& before_update = {}) {
    executor_.queue(micro_batches, scale, before_update != nullptr && module_.shape().verifies);
    if (before_update) before_update();
    StepDigests<Model>* const digests = executor_.watch().steps();
    if (digests != nullptr) digests->add_gradients();
    optimizer_.update(executor_.loss());
    if (digests != nullptr) digests->add_weights();
  }

  /// Runs the first uniform step without capture: libraries load and select kernels during that step, which cannot be
  /// captured.
  void launch(const UploadedBatches& micro_batches, float scale) {
    if (kept_scale_ != scale) {
      if (last_ != scale) return enqueue(micro_batches, scale);
      capture(micro_batches, scale);
    } else {
      for (const auto& [monitor, sent] : kept_.traffic) monitor->totals.traffic += sent;
    }
    kept_.graph.launch(module_.stream());
    ++launched_;
  }

  /// Counts the collectives of the first launch. `launch` adds them again for later launches, in which no host code
  /// calls collectives.
  void capture(const UploadedBatches& micro_batches, float scale) {
    kept_.traffic.clear();
    for (auto* const axis : module_.communicators())
      kept_.traffic.emplace_back(&axis->monitor(), axis->monitor().totals.traffic);
    kept_.graph = Device::capture(module_.stream(), [&] { enqueue(micro_batches, scale); });
    for (auto& [monitor, sent] : kept_.traffic) sent = monitor->totals.traffic - sent;
    kept_scale_ = scale;
    ++captured_;
  }

  void require_alike(std::span<const Batch> micro_batches) {
    std::vector<Pattern> patterns;
    for (const Batch& batch : micro_batches) patterns.push_back(batch.pattern());
    if (kept_.patterns.empty()) kept_.patterns = patterns;
    require(patterns == kept_.patterns,
            "training step: said to be like the others, with other sizes or ignored targets");
  }

  Module& module_;
  Executor<Model>& executor_;
  Optimizer& optimizer_;
  bool graphs_;
  std::optional<float> last_;        ///< scale of the last step, if it was uniform
  std::optional<float> kept_scale_;  ///< scale of the captured step
  detail::Captured<Device, Pattern> kept_;
  std::int64_t captured_ = 0, launched_ = 0;
};

}  // namespace fsdp::optim
