// SPDX-License-Identifier: Apache-2.0
/// @file
/// Digests of a training step: of the residual stream and its gradient, for each piece and unit, and of the reduced
/// gradients and updated weights of each unit's parameters. Bit-identical runs have the same digests, independent of
/// ranks, strategies and groups. If several ranks share each sequence, a piece's digest is the sum of their digests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tessera/comm/collectives.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/host_memory.hpp>
#include <tessera/fsdp/device/memory.hpp>
#include <tessera/fsdp/device/operations/elements.hpp>
#include <tessera/fsdp/execution/sharded_model.hpp>
#include <tessera/fsdp/module/sharded_module.hpp>
#include <tessera/fsdp/module/stack.hpp>
#include <tessera/fsdp/sharding/schedule.hpp>
#include <tessera/fsdp/verification/step_digest.hpp>

namespace fsdp {

/// Sums of digests on a device, and their copy in host memory.
template <class Module>
class DigestSums {
 public:
  using Device = typename Module::Device;

  /// `module` must outlive it.
  DigestSums(Module& module, std::int64_t count)
      : module_(module),
        host_(count),
        block_(module.ledger(), device::MemoryKind::scratch, host_.values().bytes()),
        sums_(reinterpret_cast<std::int64_t*>(block_.data()), {count}) {}

  /// Enqueues zeroing of all sums.
  void begin() { device::clear(module_.stream(), sums_); }
  /// Enqueues the addition of the digest of `values` to sum `at`. `key` identifies the tensor that `values` is a part
  /// of, from element `begin` on.
  template <class T>
  void add(std::int64_t at, Tensor<const T> values, std::uint64_t key = 1, std::int64_t begin = 0) {
    device::enqueue(module_.stream(), device::AddDigest<T>{.x = Tensor<const T>(values.data(), {values.numel()}),
                                                           .begin = begin,
                                                           .key = key,
                                                           .sum = sums_.slice(at, at + 1)});
  }
  /// Returns all ranks' sums. Waits for the device. Collective.
  DigestTable gather() {
    auto& communicator = module_.communicator();
    host_.fetch(module_.stream(), sums_.data());
    module_.synchronize();
    const auto count = static_cast<std::size_t>(sums_.numel());
    std::vector<std::uint64_t> all(count * static_cast<std::size_t>(communicator.size()));
    comm::gather_bytes(communicator, std::as_bytes(std::span(host_.values().data(), count)),
                       std::as_writable_bytes(std::span(all)), {"digests"});
    return {std::move(all), communicator.size()};
  }

 private:
  Module& module_;
  device::HostCopy<Device, std::int64_t> host_;
  device::Block<Device> block_;
  Tensor<std::int64_t> sums_;  // [count]
};

/// The part of a model's module that all stacks with the same ModuleTypes share; digests need no more.
template <class Model>
using MemoryOf = ModuleMemory<TypesOf<typename ShardedModel<Model>::Stack>>;

namespace detail {

/// See PieceDigests. `Module`: a MemoryOf.
template <class Module>
class PieceDigestsOf {
 public:
  using Compute = typename Module::Compute;

  /// `module` must outlive it.
  explicit PieceDigestsOf(Module& module)
      : module_(module), units_(std::ssize(module.names().units)), sums_(module, count()) {}

  /// Begins a micro-batch.
  void begin() { sums_.begin(); }
  /// Adds a computation's output.
  void add_stream(const sharding::Task& task, Tensor<const Compute> values) {
    sums_.template add<Compute>(2 * task.index + (task.action == sharding::Action::forward ? 0 : 1), values);
  }
  /// Adds a group's gradient before it is reduced. An unwritten gradient is zero and is skipped.
  void add_gradient(int group) {
    with_group(module_.groups()[static_cast<std::size_t>(group)], [&](const auto& own) {
      for (std::size_t i = 0; i < own.parameters().size(); ++i) {
        const auto gradient = own.gradient(static_cast<std::int64_t>(i));
        if (gradient.wanted() && *gradient.written)
          sums_.template add<float>(2 * units_ + group, Tensor<const float>(gradient.tensor),
                                    device::digest_key(own.parameters()[i].name));
      }
    });
  }
  /// Return all ranks' digests, and their number per rank. The order is: each unit's output in forward and in backward,
  /// then each group's gradient.
  /// @{
  DigestTable gather() { return sums_.gather(); }
  std::int64_t count() const { return 2 * units_ + std::ssize(module_.names().groups); }
  /// @}
  /// Returns a description of a digest for messages, such as "forward of block 2".
  std::string in_words(std::int64_t at) const {
    const auto index = static_cast<std::size_t>(at / 2);
    if (at >= 2 * units_) return "the gradient of " + module_.names().groups[static_cast<std::size_t>(at - 2 * units_)];
    return (at % 2 == 0 ? "forward of " : "backward of ") + module_.names().units[index];
  }

 private:
  Module& module_;
  std::int64_t units_;
  DigestSums<Module> sums_;
};

/// See StepDigests. `Module`: a MemoryOf.
template <class Module>
class StepDigestsOf {
 public:
  using Compute = typename Module::Compute;

  /// `module` must outlive it.
  explicit StepDigestsOf(Module& module)
      : module_(module),
        units_(std::ssize(module.names().units)),
        first_units_(module),
        sums_(module, streams() + 2 * units_) {}

  /// Begins a step.
  void begin() { sums_.begin(); }
  /// Adds a computation's output.
  void add_stream(const sharding::Task& task, Tensor<const Compute> values) {
    const bool backward = task.action != sharding::Action::forward;
    const std::uint64_t key = 1 + static_cast<std::uint64_t>(module_.sequence_group().member);  // owner of the rows
    sums_.template add<Compute>((task.micro_batch * units_ + task.index) * 2 + (backward ? 1 : 0), values, key);
  }
  /// Add the gradients of the step, and the weights after the step.
  /// @{
  void add_gradients() {
    for (const auto& piece : module_.shards())
      if (module_.is_stepped(piece)) add(piece, piece.gradient, streams());
  }
  void add_weights() {
    for (const auto& piece : module_.shards())
      if (module_.is_stepped(piece)) add(piece, Tensor<const float>(piece.main), streams() + units_);
  }
  /// @}

  /// Returns all digests of the step in the order of computation: piece by piece, then the parameters. Waits for the
  /// device. Collective; the same on all ranks.
  std::vector<StepDigest> collect() { return listed(digested_step(module_, first_units_), sums_.gather()); }

 private:
  /// Number of digests of streams.
  std::int64_t streams() const { return 2 * units_ * module_.settings().passes.micro_batches; }
  template <class Piece>
  void add(const Piece& piece, Tensor<const float> values, std::int64_t first) {
    if (piece.owned)
      sums_.template add<float>(first + first_units_.of(piece.parameter->name), values,
                                device::digest_key(piece.parameter->name), piece.begin);
  }

  Module& module_;
  std::int64_t units_;
  FirstUnits first_units_;
  DigestSums<Module> sums_;
};

}  // namespace detail

/// Digests one micro-batch, so that two computations of it can be compared: streams, and each group's gradient before
/// its reduction. All work is enqueued on the compute stream.
template <class Model>
using PieceDigests = detail::PieceDigestsOf<MemoryOf<Model>>;

/// Digests a model's training steps. All work is enqueued on the compute stream.
template <class Model>
using StepDigests = detail::StepDigestsOf<MemoryOf<Model>>;

}  // namespace fsdp
