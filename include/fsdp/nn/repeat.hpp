// SPDX-License-Identifier: Apache-2.0
/// @file
/// A loop over tiles that a dry run need not go through to its end.
#pragma once

#include <cstddef>

#include <fsdp/device/operation.hpp>
#include <fsdp/nn/module.hpp>

namespace fsdp::nn {

/// Calls each(i) for every i below `count`; alike(i) says that tile i takes the same memory and work as tile i - 1. On
/// a device that only counts, the third and later ones of a run of such tiles are not called: they take the memory of
/// the second (the first may be the first to write a gradient), and its work is counted again for each.
template <class L, class Alike, class Each>
void repeat(Context<L>& context, std::size_t count, Alike alike, Each each) {
  if constexpr (L::Device::counts_only) {
    device::Counters& counters = context.stream.counters;
    device::Counters work;  // of the last tile
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
