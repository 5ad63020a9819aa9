// SPDX-License-Identifier: Apache-2.0
/// @file
/// The memory of the residual stream between units: in the arena, in buffers that alternate, or in host memory.
///
/// If block inputs are offloaded, two device buffers alternate in holding the inputs that do not stay on the device.
/// The schedule determines the buffer that a copy reads or writes: the tasks send_input and fetch_input start copies.
/// The proof of the schedule (tessera/fsdp/sharding/event_order.hpp) determines the necessary waits, which
/// OffloadedInputs performs.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/host_memory.hpp>
#include <tessera/fsdp/nn/module.hpp>
#include <tessera/fsdp/sharding/problem.hpp>
#include <tessera/fsdp/sharding/schedule.hpp>

namespace fsdp {

/// Offloaded inputs of units, last in first out. Copies run on a separate queue if the device has queues.
template <class Device, class T>
class OffloadedInputs {
 public:
  using Offload = device::HostOffload<Device>;
  using Arena = typename Offload::Arena;
  using Stream = typename Device::Stream;

  /// `problem`: the scheduling problem of the training pass.
  OffloadedInputs(Arena& arena, Stream& stream, const sharding::Problem& problem)
      : arena_(arena),
        stream_(stream),
        buffers_of_units_(sharding::buffers_of_inputs(problem)),
        inputs_(buffers_of_units_.size()) {
    for (std::size_t unit = 0; unit < inputs_.size(); ++unit)
      inputs_[unit].is_offloaded = problem.offloads(static_cast<int>(unit));
  }

  /// Whether training offloads any input, and whether it offloads the input of a unit.
  /// @{
  bool any() const { return !inputs_.empty(); }
  bool offloads(int unit) const { return inputs_[index(unit)].is_offloaded; }
  /// @}

  /// Begins a micro-batch with its buffers, which must not be in use by a copy. Discards the state that an exception
  /// may have left.
  void begin(const std::array<Tensor<T>, sharding::input_buffers>& buffers) {
    arena_.release(Arena::End::low, {});
    for (std::size_t i = 0; i < buffers.size(); ++i) buffers_[i] = {.x = buffers[i]};  // [T, H]
  }
  /// Whether a unit's input is in a buffer during its forward.
  bool uses_buffer(int unit) const { return buffers_of_units_[index(unit)] >= 0; }
  /// Returns the buffer for a unit's input; work that is enqueued afterwards may write it. Makes the stream wait until
  /// the copy of the buffer's previous contents has finished.
  Tensor<T> buffer_for(int unit) {
    Buffer& buffer = buffers_[index(buffers_of_units_[index(unit)])];
    if (buffer.is_read) stream_.wait(buffer.sent);
    buffer.is_read = false;
    return buffer.x;
  }

  /// Starts the copy of a task, ordered after the work that is on the stream now.
  void execute(const sharding::Task& task) {
    Input& input = inputs_[index(task.index)];
    if (task.action == sharding::Action::send_input)
      send(input, buffers_[index(task.slot)]);
    else
      fetch(input, task.slot);
  }
  /// Returns the fetched input of a unit. Makes the stream wait for the fetch.
  Tensor<T> fetched(int unit) {
    const Input& input = inputs_[index(unit)];
    stream_.wait(input.fetched);
    return buffers_[index(input.buffer)].x;
  }

 private:
  struct Input {
    Tensor<T> x;  // [T, H], in host memory
    typename Arena::Mark mark;
    bool is_offloaded = false;
    int buffer = 0;  ///< index of the buffer that it was fetched to
    typename Device::Event fetched;
  };
  struct Buffer {
    Tensor<T> x;
    bool is_read = false;  ///< whether a copy that nothing has waited for reads the buffer
    typename Device::Event sent = {};
  };

  static std::size_t index(int number) { return static_cast<std::size_t>(number); }

  void send(Input& input, Buffer& buffer) {
    input.mark = arena_.mark(Arena::End::low);
    input.x = arena_.template allocate<T>(Arena::End::low, buffer.x.shape());
    copy(buffer.x, input.x);
    buffer.sent = queue_.record();
    buffer.is_read = true;
  }
  void fetch(Input& input, int buffer) {
    copy(input.x, buffers_[index(buffer)].x);
    input.fetched = queue_.record();
    input.buffer = buffer;
    arena_.release(Arena::End::low, input.mark);  // safe: later copies out run on the same queue, after this one
  }
  void copy(Tensor<const T> from, Tensor<T> to) {
    queue_.wait(stream_.record());
    Offload::template transfer<T>(stream_, queue_, from, to);
  }

  Arena& arena_;
  Stream& stream_;
  typename Device::Queue queue_{"offloaded inputs"};
  std::vector<int> buffers_of_units_;  ///< see sharding::buffers_of_inputs
  std::vector<Input> inputs_;          ///< [units]
  std::array<Buffer, sharding::input_buffers> buffers_;
};

/// The residual stream and its gradient. A unit's output is saved for backward in the arena. Two buffers alternate
/// where nothing is saved: in passes and units without a backward, and if inputs are offloaded.
template <class L>
class UnitStreams {
 public:
  using Compute = typename L::Compute;
  using Context = nn::Context<L>;
  using Offloaded = OffloadedInputs<typename L::Device, Compute>;
  using End = typename L::Arena::End;

  /// `hidden`: number of columns. `offloaded`: storage of block inputs between forward and backward; nullptr if they
  /// stay in the arena.
  UnitStreams(std::int64_t hidden, Offloaded* offloaded) : hidden_(hidden), offloaded_(offloaded) {}

  /// Begins a pass. Units before `first_backward` have no backward.
  void begin_pass(bool trains, int first_backward) {
    trains_ = trains;
    first_backward_ = first_backward;
  }
  /// Whether a unit's forward saves activations for backward, and whether these and its output stay in the arena. With
  /// offloaded inputs, blocks save nothing but their input.
  /// @{
  bool saves(int unit) const { return trains_ && unit >= first_backward_; }
  bool saves_here(int unit) const { return saves(unit) && !offloads(); }
  /// @}

  /// Allocate the entry's output, which is then x; a block's output y; and the gradient.
  /// @{
  void begin(Context& context) {
    x_ = save(context);
    if (!saves_here(1)) y_ = save(context);
    if (!offloads()) return;
    offloaded_->begin({x_, y_});
    x_ = input_of(context, 1);
  }
  void begin_block(Context& context, int unit) {
    if (saves_here(unit)) y_ = save(context);
    if (offloads()) y_ = input_of(context, unit + 1);
  }
  void begin_backward(Context& context) { dx_ = context.arena.template allocate<Compute>(End::high, shape(context)); }
  /// @}
  /// Ends a block: its output is the input x of the next unit.
  void end_block() { std::swap(x_, y_); }
  /// Returns a unit's input in backward if it was offloaded; the stream then waits for it.
  std::optional<Tensor<const Compute>> fetched(int unit) {
    if (offloaded_ == nullptr || !offloaded_->offloads(unit)) return std::nullopt;
    return offloaded_->fetched(unit);
  }

  /// Return the stream [T, H] that a unit reads, the stream that it writes, and the gradient.
  /// @{
  Tensor<Compute> x() const { return x_; }
  Tensor<Compute> y() const { return y_; }
  Tensor<Compute> dx() const { return dx_; }
  /// @}

 private:
  bool offloads() const { return trains_ && offloaded_ != nullptr; }
  Shape shape(const Context& context) const { return {context.tokens(), hidden_}; }
  Tensor<Compute> save(Context& context) const { return context.template save<Compute>(shape(context)); }
  /// Returns the memory of a unit's input if inputs are offloaded: a buffer, or separate memory that lives until the
  /// unit's backward.
  Tensor<Compute> input_of(Context& context, int unit) {
    return offloaded_->uses_buffer(unit) ? offloaded_->buffer_for(unit) : save(context);
  }

  std::int64_t hidden_;
  Offloaded* offloaded_;
  bool trains_ = true;
  int first_backward_ = 0;
  Tensor<Compute> x_, y_, dx_;
};

}  // namespace fsdp
