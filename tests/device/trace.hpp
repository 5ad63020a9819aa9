// SPDX-License-Identifier: Apache-2.0
/// @file
/// What one operation left behind on a device, to compare devices that compute with those that only count.
#pragma once

#include <cstdint>
#include <ostream>

namespace fsdp::device::reference {

struct Trace {
  std::int64_t matmul_flops = 0, attention_flops = 0, elementwise_bytes = 0, peak = 0, peak_scratch = 0, used = 0;
  friend bool operator==(const Trace&, const Trace&) = default;
};

inline std::ostream& operator<<(std::ostream& out, const Trace& t) {
  return out << t.matmul_flops << " flops, " << t.attention_flops << " in attention, " << t.elementwise_bytes
             << " bytes, peak " << t.peak << " with scratch " << t.peak_scratch << ", used " << t.used;
}

/// Runs `operation(device, arena, stream)`, which makes its own inputs: devices start with an empty arena.
template <class Device, class Operation>
Trace trace(typename Device::Arena arena, int threads, const Operation& operation) {
  typename Device::Stream stream(arena, threads);
  operation(Device(), arena, stream);
  if constexpr (Device::asynchronous) stream.synchronize();
  return {stream.counters.matmul_flops,
          stream.counters.attention_flops,
          stream.counters.elementwise_bytes,
          arena.peak(),
          arena.peak_scratch(),
          arena.used()};
}

}  // namespace fsdp::device::reference
