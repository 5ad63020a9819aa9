// SPDX-License-Identifier: Apache-2.0
/// @file
/// A loop over tiles that a dry run cuts short.
#pragma once

#include <cstddef>

#include <tessera/fsdp/device/operation.hpp>
#include <tessera/fsdp/nn/module.hpp>

namespace fsdp::nn {

/// Calls each(i) for every i below `count`. alike(i) returns whether tile i has the same memory and work as the tile
/// before it. On a device that only counts, `each` is called for the first two tiles of a run of such tiles, and the
/// second tile's work is counted again for each later tile. The first tile is not representative: its write of a
/// gradient may be the first, which overwrites. On a device that lists its matmuls, every tile is called.
template <class L, class Alike, class Each>
void repeat(Context<L>& context, std::size_t count, Alike alike, Each each) {
  if constexpr (L::Device::counts_only) {
    device::Counters& counters = context.stream.counters;
    device::Counters work;  // work of the last tile that was called
    for (std::size_t i = 0; i < count; ++i) {
      if (counters.matmuls == nullptr && i >= 2 && alike(i) && alike(i - 1)) {
        counters.add(work);
        continue;
      }
      const device::Counters before = counters;
      each(i);
      work = counters.since(before);
    }
  } else {
    for (std::size_t i = 0; i < count; ++i) each(i);
  }
}

}  // namespace fsdp::nn
