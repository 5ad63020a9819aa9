// SPDX-License-Identifier: Apache-2.0
/// @file
/// Reads, writes and checks shards of weights and optimizer state: each rank accesses only the ranges of files that
/// belong to its shards, and looks for values that are infinite or NaN before they are saved or a run ends.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <tessera/fsdp/checkpoint/folder.hpp>
#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/function_ref.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/host_memory.hpp>
#include <tessera/fsdp/device/memory.hpp>
#include <tessera/fsdp/device/operation.hpp>
#include <tessera/fsdp/device/operations/elements.hpp>
#include <tessera/fsdp/device/operations/optimizer.hpp>
#include <tessera/fsdp/module/host_weights.hpp>
#include <tessera/fsdp/module/sharded_module.hpp>
#include <tessera/fsdp/optim/sharded_optimizer.hpp>
#include <tessera/fsdp/optim/state.hpp>
#include <tessera/fsdp/precision/codec.hpp>

namespace fsdp::train {

/// The memory space of main weights and optimizer state.
template <class Stack>
using MainSpace = typename ShardedModule<Stack>::Group::MainSpace;

/// Whether the device does the check: main weights and optimizer states are in device memory that the host cannot read.
template <class Stack>
inline constexpr bool device_looks =
    !Stack::Device::host_memory && std::is_same_v<MainSpace<Stack>, typename Stack::Device>;

namespace detail {

/// Finds the largest magnitude in tensors in device memory. Uses only the part of the stream's arena that is free
/// between steps.
template <class Device>
class LargestOnDevice {
 public:
  using Stream = typename Device::Stream;

  /// `stream` must outlive this object. `largest`: a tensor of one number on the device, which is overwritten.
  LargestOnDevice(Stream& stream, Tensor<std::int64_t> largest)
      : stream_(stream), frame_(stream.arena()), largest_(largest) {
    const std::int64_t room = stream.arena().capacity() - stream.arena().used();
    const std::int64_t wide = room / 2 / device::alignment * device::alignment;
    at_once_ = elements_at_once(stream, room - wide);
    widened_ = frame_.template allocate<float>({wide / std::int64_t{sizeof(float)}}, device::MemoryKind::scratch);
    device::clear(stream, largest_);
  }

  /// Enqueues the check of a tensor. Returns false and enqueues nothing if the arena has no room for the scratch
  /// memory.
  template <class T>
  bool look(const Tensor<T>& tensor) {
    constexpr bool is_wide = std::is_same_v<std::remove_const_t<T>, float>;
    const std::int64_t part = is_wide ? at_once_ : std::min(at_once_, widened_.numel());
    if (part == 0) return tensor.numel() == 0;
    for (std::int64_t begin = 0; begin < tensor.numel(); begin += part) {
      const Tensor<const std::remove_const_t<T>> values(tensor.data() + begin,
                                                        {std::min(part, tensor.numel() - begin)});
      if constexpr (is_wide)
        enqueue(values);
      else
        enqueue(widened(values));
    }
    return true;
  }
  /// The same for a state. Returns false also for a format that this device does not decode.
  bool look(const optim::State& state) {
    if (state.format().type == DType::f32) return look(state.as<float>());
    if (state.format().type == DType::bf16) return look(state.as<bf16>());
    return look_coded(state, Dynamic8<256>()) || look_coded(state, Dynamic8<256, true>());
  }
  /// Waits for the device and returns whether all checked values are finite.
  bool finite() const {
    device::OnHost<Device, const std::int64_t> host(stream_, largest_);
    return host.values()[0] < device::infinity_bits;
  }

 private:
  /// Returns the number of elements that one operation reads: the most whose scratch memory fits in `room` bytes, or 0.
  static std::int64_t elements_at_once(const Stream& stream, std::int64_t room) {
    for (std::int64_t count = 1 << 26; count >= device::sum_chunk; count /= 2)
      if (scratch_of(stream, count) <= room) return count;
    return 0;
  }
  static std::int64_t scratch_of(const Stream& stream, std::int64_t count) {
    [[maybe_unused]] const device::LargestMagnitude op{.x = {nullptr, {count}}};
    if constexpr (requires { scratch(stream, op); })
      return round_up(scratch(stream, op), device::alignment);
    else
      return 0;
  }

  void enqueue(const Tensor<const float>& values) {
    device::enqueue(stream_, device::LargestMagnitude{.x = values, .largest = largest_});
  }
  template <class T>
  Tensor<const float> widened(const Tensor<const T>& values) {
    const Tensor<float> copy(widened_.data(), values.shape());
    device::enqueue(stream_, device::Copy<T, float>{.x = values, .y = copy});
    return copy;
  }

  template <class Codec>
  bool look_coded(const optim::State& state, const Codec& codec) {
    const std::int64_t part = std::min(at_once_, widened_.numel()) / codec.block * codec.block;
    if (state.format() != optim::state_format<Codec> || (part == 0 && state.numel() > 0)) return false;
    for (std::int64_t begin = 0; begin < state.numel(); begin += part) {
      const std::int64_t count = std::min(part, state.numel() - begin);
      const Tensor<float> values(widened_.data(), {count});
      codec.decode(stream_, Tensor<const std::byte>(state.part(begin, {count}).bytes()), values);
      enqueue(values);
    }
    return true;
  }

  Stream& stream_;
  typename Device::Arena::Frame frame_;
  std::int64_t at_once_ = 0;
  Tensor<std::int64_t> largest_;  // [1]
  Tensor<float> widened_;         // [elements of one piece of a tensor that is not float]
};

template <class T>
std::span<T> span_of(const Tensor<T>& values) {
  return {values.data(), static_cast<std::size_t>(values.numel())};
}

/// Calls weights(shard, values, begin) for the weights and state(shard, index, state, bytes) for the states of each
/// shard that this rank owns, in order. `values`, a std::span<const float>, start at element `begin` of the whole
/// tensor; `bytes` are the state's in host memory.
template <class Stack, class Optimizer, class Weights, class States>
void for_each_owned_on_host(ShardedModule<Stack>& module, const optim::ShardedOptimizer<Stack, Optimizer>& optimizer,
                            const Weights& weights, const States& states) {
  for (std::size_t i = 0; i < module.shards().size(); ++i) {
    const auto& shard = module.shards()[i];
    if (!shard.owned) continue;
    with_host_weights(module, shard, Access::read,
                      [&](Tensor<const float> values, std::int64_t begin) { weights(shard, span_of(values), begin); });
    std::size_t index = 0;
    for (const optim::State& state : optimizer.states(i)) {
      device::OnHost<MainSpace<Stack>, const std::byte> host(module.stream(), state.bytes());
      states(shard, index++, state, host.values());
    }
  }
}

}  // namespace detail

/// Returns whether the weights and optimizer states that this rank owns are finite. The device checks them without a
/// copy to the host. Also returns false if the arena of a stream without a planned step is too small for the scratch
/// memory. Waits for the device.
template <class Stack, class Optimizer>
requires device_looks<Stack>
bool finite_on_device(ShardedModule<Stack>& module, const optim::ShardedOptimizer<Stack, Optimizer>& optimizer) {
  detail::LargestOnDevice<typename Stack::Device> largest(module.stream(), optimizer.control().between_steps());
  for (std::size_t i = 0; i < module.shards().size(); ++i) {
    const auto& shard = module.shards()[i];
    if (!shard.owned) continue;
    bool seen = true;
    if (shard.has_main())
      seen = largest.look(shard.main);
    else
      with_view(shard.model, [&](const auto& model) { seen = largest.look(model); });
    if (!seen) return false;
    for (const optim::State& state : optimizer.states(i))
      if (!largest.look(state)) return false;
  }
  return largest.finite();
}

/// Throws DivergedError for the first weight or optimizer state owned by this rank that is not finite. If the device
/// does the check, values are copied to the host only after the device found one that is not finite.
template <class Stack, class Optimizer>
void require_finite(ShardedModule<Stack>& module, const optim::ShardedOptimizer<Stack, Optimizer>& optimizer) {
  if constexpr (device_looks<Stack>)
    if (finite_on_device(module, optimizer)) return;
  const auto require_values = [](std::string_view what, const auto& shard, std::span<const float> values,
                                 std::int64_t begin) {
    const std::int64_t bad = first_not_finite(values);
    if (bad >= 0)
      throw DivergedError(message(what, " ", shard.parameter->name, "[", begin + bad,
                                  "] is not finite; lower the learning rate, or look at the last steps' data"));
  };
  detail::for_each_owned_on_host(
      module, optimizer,
      [&](const auto& shard, std::span<const float> values, std::int64_t begin) {
        require_values("weight", shard, values, begin);
      },
      [&](const auto& shard, std::size_t index, const optim::State& state, Tensor<const std::byte> bytes) {
        const std::vector<float> values = optim::decoded(state.format(), bytes, state.numel());
        require_values(optimizer.specs(shard)[index].name, shard, values, shard.begin);
      });
}

/// Returns the optimizer states of each parameter of all groups. `name`: the name of the optimizer; `states`: returns
/// the states of a parameter.
checkpoint::OptimizerStates states_of(GroupList groups, std::string_view name,
                                      FunctionRef<std::span<const optim::StateSpec>(const Parameter&)> states);

/// The same for a module and an optimizer. Frozen parameters have no states. They are listed as frozen, unless the
/// model has adapters, whose base is never trained.
template <class Stack, class Optimizer>
checkpoint::OptimizerStates states_of(const ShardedModule<Stack>& module, const Optimizer& optimizer) {
  return states_of(
      module.group_list(), optimizer.name(),
      [&](const Parameter& parameter) -> std::span<const optim::StateSpec> { return optimizer.states(parameter); });
}

/// Calls read(begin, values) for consecutive ranges of elements [begin, begin + count). The values are discarded, so
/// that file errors are found before a tensor changes.
template <class T = float, class Read>
void read_and_discard(std::int64_t begin, std::int64_t count, Read read) {
  constexpr std::int64_t part = 1 << 20;
  std::vector<T> values(static_cast<std::size_t>(std::min(part, count)));
  for (std::int64_t done = 0; done < count; done += part)
    read(begin + done, std::span(values).first(static_cast<std::size_t>(std::min(part, count - done))));
}

/// Reads this rank's shards from a checkpoint and discards them, to verify the files.
template <class Stack, class Optimizer>
void verify_shards(const ShardedModule<Stack>& module, const optim::ShardedOptimizer<Stack, Optimizer>& optimizer,
                   const checkpoint::Checkpoint& from) {
  for (const auto& shard : module.shards()) {
    const std::string& name = shard.parameter->name;
    read_and_discard(shard.begin, shard.count(), [&](std::int64_t begin, std::span<float> values) {
      from.read_weight(name, begin, std::ssize(values), values.data());
    });
    for (const optim::StateSpec& state : optimizer.specs(shard)) {
      const std::int64_t first = state.format->bytes(shard.begin), bytes = state.format->bytes(shard.count());
      read_and_discard<std::byte>(first, bytes, [&](std::int64_t begin, std::span<std::byte> part) {
        from.read_state(name, state.name, begin, part);
      });
    }
  }
}

/// Sets this rank's optimizer states to zero, as before the first step.
template <class Stack, class Optimizer>
void clear_states(ShardedModule<Stack>& module, const optim::ShardedOptimizer<Stack, Optimizer>& optimizer) {
  for (std::size_t i = 0; i < module.shards().size(); ++i)
    for (const optim::State& state : optimizer.states(i)) {
      device::OnHost<MainSpace<Stack>, std::byte> host(module.stream(), state.bytes(), device::Fetch::nothing);
      std::ranges::fill(detail::span_of(host.values()), std::byte{0});
      host.write_back();
    }
}

/// Reads this rank's shards of weights and optimizer state from a checkpoint, bit-identical to the written values. Call
/// `resume_from` after all ranks have read their shards.
template <class Stack, class Optimizer>
void read_shards(ShardedModule<Stack>& module, const optim::ShardedOptimizer<Stack, Optimizer>& optimizer,
                 const checkpoint::Checkpoint& from) {
  for (std::size_t i = 0; i < module.shards().size(); ++i) {
    const auto& shard = module.shards()[i];
    const std::string& name = shard.parameter->name;
    with_host_weights(module, shard, Access::replace, [&](Tensor<float> values, std::int64_t begin) {
      from.read_weight(name, begin, values.numel(), values.data());
    });
    const auto specs = optimizer.specs(shard);
    const std::span<const optim::State> states = optimizer.states(i);
    for (std::size_t state = 0; state < states.size(); ++state) {
      device::OnHost<MainSpace<Stack>, std::byte> host(module.stream(), states[state].bytes(), device::Fetch::nothing);
      from.read_state(name, specs[state].name, specs[state].format->bytes(shard.begin), detail::span_of(host.values()));
      host.write_back();
    }
  }
}

/// Restores the numbers of steps done and skipped, and rounds the main weights to the model's type.
template <class Stack, class Optimizer>
void resume_from(ShardedModule<Stack>& module, optim::ShardedOptimizer<Stack, Optimizer>& optimizer,
                 const checkpoint::Checkpoint& from) {
  if (from.state().taken.empty())
    optimizer.control().resume(from.state().step, from.state().skipped_steps);
  else
    optimizer.control().resume(from.state().step, from.state().taken);
  module.sync_model_weights();
}

/// Restores this rank's shards of weights and optimizer state, and the numbers of steps. Throws InputError if another
/// optimizer wrote the checkpoint.
template <class Stack, class Optimizer>
void restore(ShardedModule<Stack>& module, optim::ShardedOptimizer<Stack, Optimizer>& optimizer,
             const checkpoint::Checkpoint& from) {
  from.check_same_optimizer(states_of(module, optimizer.optimizer()));
  read_shards(module, optimizer, from);
  resume_from(module, optimizer, from);
}

/// Writes the weights and optimizer states that this rank owns.
template <class Stack, class Optimizer>
void write_shards(ShardedModule<Stack>& module, const optim::ShardedOptimizer<Stack, Optimizer>& optimizer,
                  checkpoint::Save& save) {
  detail::for_each_owned_on_host(
      module, optimizer,
      [&](const auto& shard, std::span<const float> values, std::int64_t begin) {
        save.write_weight(save.place_of(shard.parameter->name), begin, values);
      },
      [&](const auto& shard, std::size_t index, const optim::State& state, Tensor<const std::byte> bytes) {
        save.write_state(save.place_of(shard.parameter->name), index, state.format().bytes(shard.begin),
                         detail::span_of(bytes));
      });
}

}  // namespace fsdp::train
