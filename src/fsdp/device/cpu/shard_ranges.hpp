// SPDX-License-Identifier: Apache-2.0
/// @file
/// Code shared by optimizers' passes over a shard: ranges for threads, and the model weights that a skipped step
/// rewrites.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/fsdp/core/bf16.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/cpu.hpp>

#include "threads.hpp"

namespace fsdp::device::cpu {

/// Calls body(begin, count) for the range of each thread.
template <class Body>
void for_ranges(const Cpu::Stream& stream, std::int64_t count, std::int64_t bytes, const Body& body) {
  for_parts(stream, {.count = count, .step = 64, .bytes = bytes},
            [&](std::int64_t begin, std::int64_t end, int) { body(begin, end - begin); });
}

template <class T>
T* at(const Tensor<T>& tensor, std::int64_t begin) {
  return tensor.numel() == 0 ? nullptr : tensor.data() + begin;
}

inline bf16* rounded(const Tensor<bf16>& model, std::int64_t begin) { return at(model, begin); }
inline bf16* rounded(const Tensor<float>&, std::int64_t) { return nullptr; }

/// Rewrites the model's weights in a skipped step.
template <class Model>
void round_again(Cpu::Stream& stream, const Tensor<float>& main, const Tensor<Model>& model) {
  if constexpr (!std::is_same_v<Model, float>)
    if (model.numel() > 0) run(stream, Copy<float, Model>{.x = main, .y = model});
}

}  // namespace fsdp::device::cpu
