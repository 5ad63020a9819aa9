// SPDX-License-Identifier: Apache-2.0
/// @file
/// Block inputs offloaded to host memory: copied out in forward, prefetched in backward one block ahead.
#pragma once

#include <cstddef>
#include <vector>

#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/offload.hpp>

namespace fsdp {

/// Offloaded inputs of blocks, last in first out. Copies run on a queue of their own if the device has queues.
template <class Device, class T>
class OffloadedInputs {
 public:
  using Offload = device::HostOffload<Device>;
  using Arena = typename Offload::Arena;
  using Stream = typename Device::Stream;

  OffloadedInputs(Arena& arena, Stream& stream, std::size_t blocks) : arena_(arena), stream_(stream), inputs_(blocks) {}

  /// Enqueues the copy of a block's input to host memory, after the work that is on the stream now.
  void send(std::size_t block, Tensor<T> x) {
    Input& input = inputs_[block];
    input.mark = arena_.mark(Arena::End::low);
    input.x = arena_.template allocate<T>(Arena::End::low, x.shape());
    queue_.wait(stream_.record());
    Offload::template transfer<T>(stream_, queue_, Tensor<const T>(x), input.x);
    input.sent = queue_.record();
  }
  /// Makes the stream wait for the copy: work enqueued after this may overwrite what was sent.
  void wait_until_sent(std::size_t block) { stream_.wait(inputs_[block].sent); }

  /// Enqueues the copy back into `x`, after the work that is on the stream now. Call it for blocks in reverse order.
  void fetch(std::size_t block, Tensor<T> x) {
    Input& input = inputs_[block];
    queue_.wait(stream_.record());
    Offload::template transfer<T>(stream_, queue_, Tensor<const T>(input.x), x);
    input.fetched = queue_.record();
    arena_.release(Arena::End::low, input.mark);  // safe: later copies out run on the same queue, after this one
  }
  /// Makes the stream wait for the copy: work enqueued after this may use what was fetched.
  void wait_until_fetched(std::size_t block) { stream_.wait(inputs_[block].fetched); }

 private:
  struct Input {
    Tensor<T> x;  // [T, H], in host memory
    typename Arena::Mark mark;
    typename Device::Event sent, fetched;
  };

  Arena& arena_;
  Stream& stream_;
  typename Device::Queue queue_{"offloaded inputs"};
  std::vector<Input> inputs_;
};

}  // namespace fsdp
