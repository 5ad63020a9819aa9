// SPDX-License-Identifier: Apache-2.0
/// @file
/// A group of tensors that are gathered and reduced together: its buffers and the collectives on them.
///
/// Tensors are always sharded over the mesh's inner axis; on one rank, or in a replicated group, the single shard is
/// the whole tensor. Over the outer axis weights are replicated and gradients reduced once per step; the elements that
/// the optimizer steps may be sharded there too.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/comm/collectives.hpp>
#include <tessera/fsdp/buffer/distributed_buffer.hpp>
#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/operations/elements.hpp>
#include <tessera/fsdp/module/stack_mesh.hpp>
#include <tessera/fsdp/module/units.hpp>
#include <tessera/fsdp/sharding/problem.hpp>

namespace fsdp {

/// A slot for gathered weights or for a unit's gradients. `data` is null if the group is used in its buffer at rest.
template <class Device>
struct Slot {
  std::byte* data = nullptr;
  std::int64_t bytes = 0;
  typename Device::Event free = {};  ///< event after which its last user no longer needs it

  /// `open` makes the slot usable and returns its memory; `close` poisons it until the next `open` (see
  /// Device::poison).
  template <class T>
  T* open() const {
    if (data != nullptr) Device::unpoison(data, bytes);
    return reinterpret_cast<T*>(data);
  }
  void close() const {
    if (data != nullptr) Device::poison(data, bytes);
  }
};

/// A group's main weights, model weights and main gradients, with the strategy's placement at rest, and its gathered
/// weights and partial gradients while a unit computes. Only `unshard` and `unshard_in_group` produce gathered weights;
/// `reduce` consumes the partial gradient.
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
  /// Placement, over the outer axis, of the elements that the optimizer steps.
  using Across = typename Stack::OptimizerPlacement;
  using MainSpace = typename Stack::OptimizerSpace;
  static constexpr bool offloaded = !std::is_same_v<MainSpace, Device>;
  template <class T, class... P>
  using Buffer = buffer::DistributedBuffer<T, Device, P...>;
  using Shard = buffer::Shard;
  using Replicate = buffer::Replicate;
  using Partial = buffer::Partial;

  using MainBuffer = buffer::DistributedBuffer<Main, MainSpace, Across, Shard>;

  /// Whether main weights and model weights are the same memory.
  static constexpr bool one_copy = std::is_same_v<Main, Compute> && !offloaded;
  static constexpr bool optimizer_sharded_across = std::is_same_v<Across, Shard>;

  /// `layout` is the layout over the ranks of the axes; `kept` the layout over the ranks of axes.keep, unless that is
  /// null. `order`: the order in which the ranks' gradients are added.
  ParameterGroup(std::vector<Parameter> parameters, int index, const Axes& axes, const sharding::GroupFacts& facts,
                 buffer::Layout layout, buffer::Layout kept, comm::SumOrder order = comm::SumOrder::any);

  /// The communicators of the group's axes.
  const Axes& axes() const { return axes_; }
  /// Whether gathered weights alias the buffer at rest (in a replicated group, or on one rank), and whether partial
  /// gradients do (in the same cases, except on one rank if a step is split into pieces: Reproducible).
  /// @{
  bool in_place() const { return axes_.shard == nullptr; }
  bool adds_in_place() const { return axes_.reduce == nullptr; }
  /// @}
  /// Whether this rank owns its shards: the first of several replicas does.
  bool owns() const { return optimizer_sharded_across || at_.replica == 0; }

  /// Bytes of the buffers at rest on this rank: main weights that are separate from the model weights, model weights,
  /// gradients, and the part that it keeps after forward.
  /// @{
  std::int64_t main_bytes() const { return one_copy ? 0 : bytes_of<Main>(main_size()); }
  std::int64_t model_bytes() const { return bytes_of<Compute>(model_size()); }
  std::int64_t gradient_bytes() const { return facts_.trainable ? bytes_of<Accumulate>(model_size()) : 0; }
  std::int64_t kept_bytes() const { return bytes_of<Compute>(kept_size()); }
  /// @}
  /// Number of elements of the buffers at rest on this rank.
  std::int64_t model_size() const { return layout_->local_size(at_.shard); }
  /// Number of elements of the main weights on this rank; 0 if the group has none.
  std::int64_t main_size() const {
    if (!has_main()) return 0;
    return optimizer_sharded_across ? layout_->across_size(at_.shard, at_.replica) : model_size();
  }
  /// Number of elements that this rank keeps after forward, if k ranks together keep the weights; else 0.
  std::int64_t kept_size() const { return axes_.keep == nullptr ? 0 : kept_size_of(axes_.keep->rank()); }

  /// Whether the group has main weights. A frozen group has only model weights, unless both are the same memory.
  bool has_main() const { return one_copy || facts_.trainable; }

  /// Sets the memory of the buffers at rest: nullptr for those without bytes. With one_copy the main weights are part
  /// of the model weights.
  void use_memory(std::byte* main, std::byte* model, std::byte* gradient, std::byte* kept);

  /// The buffers that the optimizer steps: main weights (empty without has_main), their rounded copy in the model
  /// weights, and their gradient.
  /// @{
  const MainBuffer& main() const { return main_; }
  const Buffer<Compute, Across, Shard>& model_part() const { return model_part_; }
  const Buffer<Accumulate, Across, Shard>& main_gradient() const { return main_gradient_; }
  /// @}
  /// This rank's shard of the model weights, and of the gradients after the reduction over the inner axis.
  /// @{
  const Buffer<Compute, Replicate, Shard>& model() const { return model_; }
  const Buffer<Accumulate, Partial, Shard>& summed_gradient() const { return summed_; }
  /// @}

  /// Starts the in-place all-gather of the model weights over the outer axis, after the event `written`. Does nothing
  /// unless the optimizer is sharded over the outer axis.
  void gather_across(const Event& written);

  /// Starts the all-gather of the weights at rest into `slot`, of layout().full_size elements. The weights must have
  /// been written before `slot.free`. If in_place(), `slot` is not used.
  void unshard(const Slot<Device>& slot);
  /// Copies the part that this rank keeps, as one of k ranks, from the gathered weights.
  void keep(Stream& stream);
  /// Starts the all-gather of the kept parts into `slot`.
  void unshard_in_group(const Slot<Device>& slot);
  /// Whether the gathered weights have memory, even if the gather is still running.
  bool is_gathered() const { return gathered_.placed(); }
  /// Lets the group's collectives make progress, if their backend needs the host for it.
  void progress() {
    gathering_.progress();
    reducing_.progress();
  }
  /// Makes `stream` wait for the gather: work enqueued after this may use the gathered weights.
  void wait_for_weights(Stream& stream) { arriving().wait(stream); }
  /// Whether the gather has finished, and whether the last reduction has. Both let the collective progress, and do not
  /// wait.
  /// @{
  bool weights_arrived() { return arriving().test(); }
  bool reduction_over() { return reducing_.test(); }
  /// @}
  /// Releases the gathered weights.
  void reshard() { gathered_.consume(); }

  /// Returns the gathered tensor with index `i`. Throws LogicError if the group is not gathered.
  Tensor<const Compute> weight(std::int64_t i) const { return gathered_.tensor(i); }

  /// Sets the buffer to which backward writes gradients; `slot` is not used if adds_in_place().
  void begin_gradient(Accumulate* slot) {
    partial_ = {*layout_, at_, adds_in_place() ? summed_.data() : slot};
    if (!adds_in_place()) std::fill_n(written_.get(), parameters_.size(), false);
  }
  /// Returns the gradient of tensor `i`; in a frozen group, a view with a shape but without memory.
  GradientView<Accumulate> gradient(std::int64_t i) const {
    return facts_.trainable ? GradientView<Accumulate>{partial_.tensor(i), &written_[static_cast<std::size_t>(i)]}
                            : no_gradient(i);
  }
  /// Returns a placeholder for an unwanted gradient of tensor `i`: a shape without memory.
  GradientView<Accumulate> no_gradient(std::int64_t i) const {
    const auto index = static_cast<std::size_t>(i);
    return {Tensor<Accumulate>(nullptr, layout_->shapes[index]), &written_[index]};
  }

  /// Starts a step: the next reduction (or, if adds_in_place(), the first write) overwrites the gradients. A group that
  /// is never gathered accumulates directly into the gradients at rest, which are zeroed here.
  void begin_step(Stream& stream);

  /// Zeroes the gradients that were not written, then starts the reduction over the inner axis. A group that
  /// adds_in_place() is reduced over the outer axis instead, unless reduce_across does that. `computed`: whether this
  /// rank computed the micro-batch; if not, it contributes -0, which leaves every sum bit-identical.
  void reduce(Stream& stream, bool computed = true);
  /// Drops the partial gradient instead of reducing it.
  void drop_gradient() { partial_.consume(); }
  /// Starts the reduction over the outer axis, which runs after the reduction over the inner axis.
  void reduce_across(Stream& stream) {
    start_across(adds_in_place() ? stream.record() : reducing_.done(), "gradients across");
  }
  /// Returns the completion event of the last reduction that was started.
  Event reduced() { return reducing_.done(); }
  /// Ends a pass: makes `stream` wait for the last reduction, so that work enqueued after this may use the reduced
  /// gradients. Drops the pass's events, since work ordered after `stream` is then ordered after these events too.
  void end_pass(Stream& stream) {
    reducing_.wait(stream);
    crossing_ = {};
    gathering_ = {};
    reducing_ = {};
  }

  /// Ends a pass that was interrupted by an exception: waits for the collectives that it started, and drops its
  /// gathered weights and gradients.
  void abandon_pass(Stream& stream) {
    crossing_.wait(stream);
    gathering_.wait(stream);
    end_pass(stream);
    partial_ = {};
    if (!facts_.resident) gathered_ = {};
  }

  /// Gathers the main weights (in a frozen group, the model weights) into `full`, of layout().full_size elements, for
  /// use by work enqueued on `stream` after this. `part` is a workspace of model_size() elements.
  void gather_main(Stream& stream, Main* part, Main* full) const;

 private:
  using Coordinates = buffer::Coordinates;

  template <class T>
  static std::int64_t bytes_of(std::int64_t elements) {
    return checked_multiply(elements, static_cast<std::int64_t>(sizeof(T)));
  }

  /// Returns the part of this rank's shard (which begins at `data`) that its optimizer steps.
  template <class T>
  Buffer<T, Across, Shard> part_of(T* data) const {
    const Buffer<T, Replicate, Shard> whole(*layout_, at_, data);
    if constexpr (optimizer_sharded_across)
      return buffer::redistribute(whole);
    else
      return whole;
  }

  void start_across(const Event& summed, const char* what);
  comm::Pending<Comm>& arriving() { return in_place() ? crossing_ : gathering_; }

  int index_;
  comm::SumOrder order_;
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

template <class Stack>
ParameterGroup<Stack>::ParameterGroup(std::vector<Parameter> parameters, int index, const Axes& axes,
                                      const sharding::GroupFacts& facts, buffer::Layout layout, buffer::Layout kept,
                                      comm::SumOrder order)
    : GroupTensors(std::move(parameters), facts, std::move(layout), std::move(kept)),
      index_(index),
      order_(order),
      axes_(axes),
      at_(Axes::rank(axes.shard), Axes::rank(axes.across)) {
  facts_.slot_elements = adds_in_place() ? 0 : layout_->full_size;
  facts_.weights_at_rest = in_place();
  facts_.bytes_per_weight = sizeof(Compute);
  facts_.bytes_per_gradient = sizeof(Accumulate);
}

template <class Stack>
void ParameterGroup<Stack>::use_memory(std::byte* main, std::byte* model, std::byte* gradient, std::byte* kept) {
  auto* const sums = facts_.trainable ? reinterpret_cast<Accumulate*>(gradient) : nullptr;
  model_ = {*layout_, at_, reinterpret_cast<Compute*>(model)};
  summed_ = {*layout_, at_, sums};
  kept_data_ = reinterpret_cast<Compute*>(kept);
  model_part_ = part_of(reinterpret_cast<Compute*>(model));
  if (sums != nullptr || model_size() == 0) main_gradient_ = part_of(sums);
  if constexpr (one_copy)
    main_ = model_part_;
  else if (has_main())
    main_ = {*layout_, at_, reinterpret_cast<Main*>(main)};
}

template <class Stack>
void ParameterGroup<Stack>::gather_across(const Event& written) {
  if constexpr (optimizer_sharded_across) {
    if (axes_.across == nullptr) return;
    comm::after(*axes_.across, written);
    crossing_ = buffer::redistribute(*axes_.across, model_part_, model_, {"weights across", index_});
  }
}

template <class Stack>
void ParameterGroup<Stack>::unshard(const Slot<Device>& slot) {
  if (in_place()) {
    gathered_ = {*layout_, at_, model_.data()};
    return;
  }
  gathered_ = {*layout_, at_, slot.template open<Compute>()};
  comm::after(*axes_.shard, crossing_.done());
  comm::after(*axes_.shard, slot.free);
  gathering_ = buffer::redistribute(*axes_.shard, model_, gathered_, {"weights", index_});
}

template <class Stack>
void ParameterGroup<Stack>::keep(Stream& stream) {
  for (const buffer::Run& run : kept_layout_->runs) {
    const int rank = axes_.keep->rank();
    const Shape count{run.counts[static_cast<std::size_t>(rank)]};
    device::enqueue(stream, device::Copy<Compute>{.x = Tensor<const Compute>(gathered_.data() + run.begin(rank), count),
                                                  .y = Tensor<Compute>(kept_data_ + run.local, count)});
  }
  kept_ = stream.record();
}

template <class Stack>
void ParameterGroup<Stack>::unshard_in_group(const Slot<Device>& slot) {
  const Coordinates at(axes_.keep->rank());
  gathered_ = {*layout_, at_, slot.template open<Compute>()};
  comm::after(*axes_.keep, kept_);
  comm::after(*axes_.keep, slot.free);
  gathering_ = buffer::redistribute(
      *axes_.keep, Buffer<Compute, Shard>(*kept_layout_, at, kept_data_),
      Buffer<Compute, Replicate>(*kept_layout_, at, reinterpret_cast<Compute*>(slot.data)), {"kept weights", index_});
}

template <class Stack>
void ParameterGroup<Stack>::begin_step(Stream& stream) {
  reduced_ = false;
  std::fill_n(written_.get(), parameters_.size(), false);
  if (!facts_.gathered && facts_.trainable && summed_.size() > 0)
    device::enqueue(stream, device::Fill<Accumulate>{.y = {summed_.data(), {summed_.size()}}, .value = 0.0f});
}

template <class Stack>
void ParameterGroup<Stack>::reduce(Stream& stream, bool computed) {
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    if (!written_[i]) {
      device::enqueue(stream, device::Fill<Accumulate>{.y = partial_.tensor(static_cast<std::int64_t>(i)),
                                                       .value = computed ? 0.0f : -0.0f});
      written_[i] = true;
    }
  if (adds_in_place()) {
    if (facts_.across == sharding::Across::nothing) start_across(stream.record(), "gradients");
    return;
  }
  comm::after(*axes_.reduce, stream.record());
  reducing_ = buffer::redistribute<Wire>(*axes_.reduce, std::move(partial_), summed_,
                                         std::exchange(reduced_, true) ? Write::accumulate : Write::overwrite,
                                         {"gradients", index_}, order_);
}

template <class Stack>
void ParameterGroup<Stack>::gather_main(Stream& stream, Main* part, Main* full) const {
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

template <class Stack>
void ParameterGroup<Stack>::start_across(const Event& summed, const char* what) {
  if (axes_.across == nullptr) return;
  comm::after(*axes_.across, summed);
  auto sum = summed_;
  const comm::Label label{what, index_};
  if constexpr (optimizer_sharded_across)
    reducing_ = buffer::redistribute<Wire>(*axes_.across, std::move(sum), main_gradient_, Write::overwrite, label);
  else
    reducing_ = buffer::redistribute<Wire>(*axes_.across, std::move(sum), main_gradient_, label);
}

}  // namespace fsdp
