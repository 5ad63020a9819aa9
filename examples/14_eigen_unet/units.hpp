// SPDX-License-Identifier: Apache-2.0
// The declarations of the U-Net for Tessera: its tensors, and the order of computations.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include <tessera/fsdp/sharded.hpp>

#include "unet.hpp"

namespace unet {

inline std::vector<fsdp::Unit> sharded_units() {
  std::vector<fsdp::Unit> list(units);
  const auto block = [&list](int unit, const std::string& name, int in, int out) {
    const auto normal = fsdp::Initial::normal(1 / std::sqrt(4.5 * in));
    list[static_cast<std::size_t>(unit)] = {
        .name = name,
        .parameters = {{.name = name + ".weight", .shape = {out, in, 3, 3}, .initial = normal, .decays = true},
                       {.name = name + ".gamma", .shape = {out}, .initial = fsdp::Initial::ones},
                       {.name = name + ".beta", .shape = {out}, .initial = fsdp::Initial::zeros}}};
  };
  block(enc1, "enc1", 1, channels);
  block(enc2, "enc2", channels, 2 * channels);
  block(middle, "middle", 2 * channels, 2 * channels);
  block(dec2, "dec2", 4 * channels, channels);
  block(dec1, "dec1", 2 * channels, channels);
  list[head] = {.name = "head",
                .parameters = {{.name = "head.weight", .shape = {1, channels}, .initial = fsdp::Initial::normal(0.3)},
                               {.name = "head.bias", .shape = {1}, .initial = fsdp::Initial::zeros}}};
  return list;
}

/// Forward through the blocks, forward and backward of the head as one computation, then backward.
inline fsdp::Order order() { return fsdp::mirrored({enc1, enc2, middle, dec2, dec1}, head); }

}  // namespace unet
