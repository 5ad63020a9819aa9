// SPDX-License-Identifier: Apache-2.0
/// @file
/// Block inputs offloaded to host memory: the copies that the tasks send_input and fetch_input of a schedule start.
///
/// Two device buffers alternate in holding the inputs that do not stay on the device. The schedule determines the
/// buffer that a copy reads or writes. The proof of the schedule (tessera/fsdp/sharding/event_order.hpp) determines the
/// necessary waits, which this class performs.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include <tessera/fsdp/core/dtype.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/fsdp/device/host_memory.hpp>
#include <tessera/fsdp/device/meta.hpp>
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

// Compiled into the library.
extern template class OffloadedInputs<device::Cpu, float>;
extern template class OffloadedInputs<device::Cpu, bf16>;
extern template class OffloadedInputs<device::Meta, float>;
extern template class OffloadedInputs<device::Meta, bf16>;

}  // namespace fsdp
