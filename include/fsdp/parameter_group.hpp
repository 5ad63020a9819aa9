// SPDX-License-Identifier: Apache-2.0
/// @file
/// A group of tensors that are gathered and reduced together: three buffers, and where they are now.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <comm/collectives.hpp>
#include <fsdp/buffer/distributed_buffer.hpp>
#include <fsdp/nn/module.hpp>

namespace fsdp {

/// A parameter of a model: its checkpoint name, global shape and beginning.
struct NamedParameter {
  std::string name;
  Shape shape;
  nn::Initial initial = nn::Initial::normal;
};

/// Main weights, model weights and main gradients of a group, placed as the strategy has them at rest, and the gathered
/// and partial forms while a unit computes. Only `unshard` makes gathered weights; `reduce` uses the partial gradient
/// up.
template <class Stack>
class ParameterGroup {
 public:
  using Comm = typename Stack::Comm;
  using Device = typename Stack::Device;
  using Main = typename Stack::Precision::Main;
  using Compute = typename Stack::Precision::Compute;
  using Accumulate = typename Stack::Precision::Accumulate;
  using Wire = typename Stack::Precision::Reduce;
  using AtRest = typename Stack::Sharding::AtRest;
  template <class T, class P>
  using Buffer = buffer::DistributedBuffer<T, Device, P>;

  static constexpr bool sharded = std::is_same_v<AtRest, buffer::Shard>;
  static constexpr bool one_copy = std::is_same_v<Main, Compute>;  ///< the main weights are the model weights

  ParameterGroup(std::vector<NamedParameter> parameters, int index, int rank, int ranks)
      : parameters_(std::move(parameters)), index_(index), rank_(rank), in_place_(!sharded || ranks == 1) {
    std::vector<Shape> shapes;
    for (const NamedParameter& parameter : parameters_) shapes.push_back(parameter.shape);
    layout_ = std::make_unique<const buffer::Layout>(Stack::Sharding::Layout::build(shapes, ranks));
    written_ = std::make_unique<bool[]>(parameters_.size());
  }

  const std::vector<NamedParameter>& parameters() const { return parameters_; }
  const buffer::Layout& layout() const { return *layout_; }
  /// Whether gathered weights and partial gradients are the buffers at rest: replicated, or alone. Nothing moves then.
  bool in_place() const { return in_place_; }
  /// Elements at rest on this rank.
  std::int64_t resting_size() const { return sharded ? layout_->local_size : layout_->full_size; }

  void place(Main* main, Compute* model, Accumulate* gradient) {
    main_ = {*layout_, rank_, main};
    model_ = {*layout_, rank_, model};
    main_gradient_ = {*layout_, rank_, gradient};
  }

  const Buffer<Main, AtRest>& main() const { return main_; }
  const Buffer<Compute, AtRest>& model() const { return model_; }
  const Buffer<Accumulate, AtRest>& main_gradient() const { return main_gradient_; }

  /// Starts to gather into `slot`, of layout().full_size elements; nullptr where in_place().
  void unshard(Comm& communicator, Compute* slot) {
    if constexpr (sharded) {
      if (!in_place_) {
        gathered_ = {*layout_, rank_, slot};
        gathering_ = buffer::redistribute(communicator, model_, gathered_, {"weights", index_});
        return;
      }
    }
    gathered_ = {*layout_, rank_, model_.data()};
  }
  bool is_gathered() const { return gathered_.placed(); }
  void progress() { gathering_.test(); }
  void wait_for_weights() { gathering_.wait(); }
  /// Gives the gathered weights up.
  void reshard() { gathered_.consume(); }

  /// Tensor `i`, whole. Throws LogicError where the group is not gathered.
  Tensor<const Compute> weight(std::int64_t i) const { return gathered_.tensor(i); }

  /// Names the buffer that this unit's backward writes into; `slot` is nullptr where in_place().
  void begin_gradient(Accumulate* slot) {
    partial_ = {*layout_, rank_, in_place_ ? main_gradient_.data() : slot};
    if (!in_place_) std::fill_n(written_.get(), parameters_.size(), false);
  }
  nn::GradientView<Accumulate> gradient(std::int64_t i) const {
    return {partial_.tensor(i), &written_[static_cast<std::size_t>(i)]};
  }

  /// At the start of a step: the next reduction, or the first write where in place, replaces what is there.
  void begin_step() {
    reduced_ = false;
    std::fill_n(written_.get(), parameters_.size(), false);
  }

  /// Clears the gradients that nothing was written to, then starts the reduction.
  void reduce(Comm& communicator, typename Device::Stream& stream) {
    for (std::size_t i = 0; i < parameters_.size(); ++i)
      if (!written_[i]) {
        Device::template fill<Accumulate>(stream, partial_.tensor(static_cast<std::int64_t>(i)), 0.0f);
        written_[i] = true;
      }
    if (communicator.size() == 1) return;
    const comm::Label label{"gradients", index_};
    if constexpr (sharded)
      reducing_ =
          buffer::redistribute<Wire>(communicator, std::move(partial_), main_gradient_,
                                     std::exchange(reduced_, true) ? Write::accumulate : Write::overwrite, label);
    else
      reducing_ = buffer::redistribute<Wire>(communicator, std::move(partial_), main_gradient_, label);
  }
  void wait_for_reduction() { reducing_.wait(); }

 private:
  std::vector<NamedParameter> parameters_;
  std::unique_ptr<const buffer::Layout> layout_;
  int index_;
  int rank_;
  bool in_place_;
  bool reduced_ = false;
  std::unique_ptr<bool[]> written_;
  Buffer<Main, AtRest> main_;
  Buffer<Compute, AtRest> model_;
  Buffer<Accumulate, AtRest> main_gradient_;
  Buffer<Compute, buffer::Replicate> gathered_;
  Buffer<Accumulate, buffer::Partial> partial_;
  comm::Pending<Comm> gathering_;
  comm::Pending<Comm> reducing_;
};

}  // namespace fsdp
