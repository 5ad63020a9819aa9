// SPDX-License-Identifier: Apache-2.0
/// @file
/// A group of tensors that are gathered and reduced together: three buffers, and where they are now.
///
/// Over the mesh's inner axis tensors are always sharded; one rank alone, or a replicated group, is a shard that is
/// whole. Over the outer axis weights are replicated and gradients reduced once a step; the optimizer's part may be
/// sharded there too.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include <comm/collectives.hpp>
#include <fsdp/buffer/distributed_buffer.hpp>
#include <fsdp/device/operations/elements.hpp>
#include <fsdp/module/group_tensors.hpp>
#include <fsdp/module/slot.hpp>
#include <fsdp/module/stack_mesh.hpp>
#include <fsdp/module/units.hpp>
#include <fsdp/nn/module.hpp>
#include <fsdp/sharding/problem.hpp>

namespace fsdp {

/// Main weights, model weights and main gradients of a group, placed as the strategy has them at rest, and the gathered
/// and partial forms while a unit computes. Only `unshard` makes gathered weights; `reduce` uses the partial gradient
/// up.
template <class Stack>
class ParameterGroup : public GroupTensors {
 public:
  using Comm = typename Stack::Comm;
  using Device = typename Stack::Device;
  using Main = typename Stack::Precision::Main;
  using Compute = typename Stack::Precision::Compute;
  using Accumulate = typename Stack::Precision::Accumulate;
  using Wire = typename Stack::Precision::Reduce;
  using Axes = GroupAxes<Comm>;
  using Event = typename Device::Event;
  using Stream = typename Device::Stream;
  using Across = typename Stack::OptimizerPlacement;  ///< placement of what the optimizer steps, over the outer axis
  using MainSpace = typename Stack::OptimizerSpace;
  static constexpr bool offloaded = !std::is_same_v<MainSpace, Device>;
  template <class T, class... P>
  using Buffer = buffer::DistributedBuffer<T, Device, P...>;
  using Shard = buffer::Shard;
  using Replicate = buffer::Replicate;
  using Partial = buffer::Partial;

  using MainBuffer = buffer::DistributedBuffer<Main, MainSpace, Across, Shard>;

  /// Whether the main weights are the model weights.
  static constexpr bool one_copy = std::is_same_v<Main, Compute> && !offloaded;
  static constexpr bool optimizer_sharded_across = std::is_same_v<Across, Shard>;

  /// `layout` is cut over the axes; `kept` over axes.keep, where there is one.
  ParameterGroup(std::vector<NamedParameter> parameters, int index, const Axes& axes, const sharding::GroupFacts& facts,
                 buffer::Layout layout, buffer::Layout kept)
      : GroupTensors(std::move(parameters), facts, std::move(layout), std::move(kept)),
        index_(index),
        axes_(axes),
        at_(Axes::rank(axes.shard), Axes::rank(axes.across)) {
    facts_.slot_elements = in_place() ? 0 : layout_->full_size;
  }

  /// Whose ranks it is cut over.
  const Axes& axes() const { return axes_; }
  /// Whether gathered weights and partial gradients are the buffers at rest: replicated, or alone.
  bool in_place() const { return axes_.shard == nullptr; }
  /// Whether this rank is the one that counts what it holds: of replicas, the first.
  bool owns() const { return optimizer_sharded_across || at_.replica == 0; }

  /// Elements of the buffers at rest on this rank.
  std::int64_t model_size() const { return layout_->local_size(at_.shard); }
  /// Elements of the main weights on this rank; 0 of a group that has none.
  std::int64_t main_size() const {
    if (!has_main()) return 0;
    return optimizer_sharded_across ? layout_->across_size(at_.shard) : model_size();
  }
  /// Elements that this rank keeps after forward, of k ranks that keep the weights together; else 0.
  std::int64_t kept_size() const { return axes_.keep == nullptr ? 0 : kept_size_of(axes_.keep->rank()); }

  /// Whether there are main weights. Frozen weights are what the model computes with, and nothing wider.
  bool has_main() const { return one_copy || facts_.trainable; }

  /// With one_copy `main` is not read: the main weights lie among the model weights.
  void place(Main* main, Compute* model, Accumulate* gradient, Compute* kept) {
    model_ = {*layout_, at_, model};
    summed_ = {*layout_, at_, gradient};
    kept_data_ = kept;
    model_part_ = part_of(model);
    if (gradient != nullptr || model_size() == 0) main_gradient_ = part_of(gradient);
    if constexpr (one_copy)
      main_ = model_part_;
    else if (has_main())
      main_ = {*layout_, at_, main};
  }

  /// What the optimizer steps (nothing without has_main), its rounded copy among the model weights, and its gradient.
  /// @{
  const MainBuffer& main() const { return main_; }
  const Buffer<Compute, Across, Shard>& model_part() const { return model_part_; }
  const Buffer<Accumulate, Across, Shard>& main_gradient() const { return main_gradient_; }
  /// @}
  /// Model weights, and gradients as the inner axis summed them.
  /// @{
  const Buffer<Compute, Replicate, Shard>& model() const { return model_; }
  const Buffer<Accumulate, Partial, Shard>& summed_gradient() const { return summed_; }
  /// @}

  /// Starts to gather the model weights' parts over the outer axis, in place, after `written`.
  void gather_across(const Event& written) {
    if constexpr (optimizer_sharded_across) {
      if (axes_.across == nullptr) return;
      comm::after(*axes_.across, written);
      crossing_ = buffer::redistribute(*axes_.across, model_part_, model_, {"weights across", index_});
    }
  }

  /// Starts to gather the weights at rest into `slot`, of layout().full_size elements; they were written before it was
  /// free. Where in_place() it is not used.
  void unshard(const Slot<Compute, Device>& slot) {
    if (in_place()) {
      gathered_ = {*layout_, at_, model_.data()};
      return;
    }
    gathered_ = {*layout_, at_, slot.open()};
    comm::after(*axes_.shard, crossing_.done());
    comm::after(*axes_.shard, slot.free);
    gathering_ = buffer::redistribute(*axes_.shard, model_, gathered_, {"weights", index_});
  }
  /// Copies this rank's part, of the k ranks that keep the weights together, out of the gathered weights.
  void keep(Stream& stream) {
    for (const buffer::Run& run : kept_layout_->runs) {
      const int rank = axes_.keep->rank();
      const Shape count{run.counts[static_cast<std::size_t>(rank)]};
      device::enqueue(stream,
                      device::Copy<Compute>{.x = Tensor<const Compute>(gathered_.data() + run.begin(rank), count),
                                            .y = Tensor<Compute>(kept_data_ + run.local, count)});
    }
    kept_ = stream.record();
  }
  /// Starts to gather from the kept parts into `slot`.
  void unshard_in_group(const Slot<Compute, Device>& slot) {
    const Coordinates at(axes_.keep->rank());
    gathered_ = {*layout_, at_, slot.open()};
    comm::after(*axes_.keep, kept_);
    comm::after(*axes_.keep, slot.free);
    gathering_ =
        buffer::redistribute(*axes_.keep, Buffer<Compute, Shard>(*kept_layout_, at, kept_data_),
                             Buffer<Compute, Replicate>(*kept_layout_, at, slot.data), {"kept weights", index_});
  }
  /// Whether the gathered weights have a slot, be the gather done or not.
  bool is_gathered() const { return gathered_.placed(); }
  /// Lets the group's collectives proceed, where the host moves.
  void progress() {
    gathering_.progress();
    reducing_.progress();
  }
  /// Work enqueued on `stream` after this may use the gathered weights.
  void wait_for_weights(Stream& stream) {
    if (in_place())
      crossing_.wait(stream);
    else
      gathering_.wait(stream);
  }
  /// Gives the gathered weights up.
  void reshard() { gathered_.consume(); }

  /// Tensor `i`, whole. Throws LogicError where the group is not gathered.
  Tensor<const Compute> weight(std::int64_t i) const { return gathered_.tensor(i); }

  /// Names the buffer that this unit's backward writes into; `slot` is nullptr where in_place().
  void begin_gradient(Accumulate* slot) {
    partial_ = {*layout_, at_, in_place() ? summed_.data() : slot};
    if (!in_place()) std::fill_n(written_.get(), parameters_.size(), false);
  }
  /// A frozen group's views have a shape and no memory.
  nn::GradientView<Accumulate> gradient(std::int64_t i) const {
    const auto index = static_cast<std::size_t>(i);
    return {facts_.trainable ? partial_.tensor(i) : Tensor<Accumulate>(nullptr, layout_->shapes[index]),
            &written_[index]};
  }

  /// At the start of a step: the next reduction, or the first write where in place, replaces what is there.
  void begin_step() {
    reduced_ = false;
    std::fill_n(written_.get(), parameters_.size(), false);
  }

  /// Clears the gradients that nothing was written to, then starts the reduction over the inner axis; of a replicated
  /// group, over the outer one.
  void reduce(Stream& stream) {
    for (std::size_t i = 0; i < parameters_.size(); ++i)
      if (!written_[i]) {
        device::enqueue(stream,
                        device::Fill<Accumulate>{.y = partial_.tensor(static_cast<std::int64_t>(i)), .value = 0.0f});
        written_[i] = true;
      }
    if (in_place()) {
      if (facts_.across == sharding::Across::nothing) start_across(stream.record(), "gradients");
      return;
    }
    comm::after(*axes_.shard, stream.record());
    reducing_ = buffer::redistribute<Wire>(*axes_.shard, std::move(partial_), summed_,
                                           std::exchange(reduced_, true) ? Write::accumulate : Write::overwrite,
                                           {"gradients", index_});
  }
  /// Starts the reduction over the outer axis of what the inner one summed.
  void reduce_across(Stream& stream) {
    start_across(in_place() ? stream.record() : reducing_.done(), "gradients across");
  }
  /// When the last reduction that was started is over.
  Event reduced() { return reducing_.done(); }
  /// Work enqueued on `stream` after this may use the reduced gradients. The events of this pass are not used any more:
  /// work that follows `stream` follows them.
  void end_pass(Stream& stream) {
    reducing_.wait(stream);
    crossing_ = {};
    gathering_ = {};
    reducing_ = {};
  }

  /// Gathers the main weights (the model weights of a frozen group) whole into `full`, of layout().full_size elements,
  /// for `stream` to use. `part` is workspace of model_size() elements.
  void gather_main(Stream& stream, Main* part, Main* full) const {
    const Buffer<Main, Replicate, Shard> shard(*layout_, at_, part);
    const auto own = part_of(part);
    const Tensor<Main> mine(own.data(), {own.size()});
    if (has_main())
      device::enqueue(stream, device::Copy<Main>{.x = Tensor<const Main>(main_.data(), {main_.size()}), .y = mine});
    else
      device::enqueue(
          stream, device::Copy<Compute, Main>{.x = Tensor<const Compute>(model_part_.data(), {own.size()}), .y = mine});
    if constexpr (optimizer_sharded_across)
      if (axes_.across != nullptr) {
        comm::after(*axes_.across, stream.record());
        buffer::redistribute(*axes_.across, own, shard, {"main weights across", index_}).wait(stream);
      }
    if (in_place()) {
      device::enqueue(stream, device::Copy<Main>{.x = Tensor<const Main>(part, {layout_->full_size}),
                                                 .y = Tensor<Main>(full, {layout_->full_size})});
      return;
    }
    const Buffer<Main, Replicate, Replicate> whole(*layout_, at_, full);
    comm::after(*axes_.shard, stream.record());
    buffer::redistribute(*axes_.shard, shard, whole, {"main weights", index_}).wait(stream);
  }

 private:
  using Coordinates = buffer::Coordinates;

  /// What the optimizer has of this rank's shard, which begins at `data`.
  template <class T>
  Buffer<T, Across, Shard> part_of(T* data) const {
    const Buffer<T, Replicate, Shard> whole(*layout_, at_, data);
    if constexpr (optimizer_sharded_across)
      return buffer::redistribute(whole);
    else
      return whole;
  }

  void start_across(const Event& summed, const char* what) {
    if (axes_.across == nullptr) return;
    comm::after(*axes_.across, summed);
    auto sum = summed_;
    const comm::Label label{what, index_};
    if constexpr (optimizer_sharded_across)
      reducing_ = buffer::redistribute<Wire>(*axes_.across, std::move(sum), main_gradient_, Write::overwrite, label);
    else
      reducing_ = buffer::redistribute<Wire>(*axes_.across, std::move(sum), main_gradient_, label);
  }

  int index_;
  Axes axes_;
  Coordinates at_;
  bool reduced_ = false;
  Compute* kept_data_ = nullptr;
  Event kept_;
  MainBuffer main_;
  Buffer<Compute, Replicate, Shard> model_;
  Buffer<Compute, Across, Shard> model_part_;
  Buffer<Accumulate, Partial, Shard> summed_;
  Buffer<Accumulate, Across, Shard> main_gradient_;
  Buffer<Compute, Replicate, Replicate> gathered_;
  Buffer<Accumulate, Partial, Partial> partial_;
  comm::Pending<Comm> crossing_;
  comm::Pending<Comm> gathering_;
  comm::Pending<Comm> reducing_;
};

}  // namespace fsdp
