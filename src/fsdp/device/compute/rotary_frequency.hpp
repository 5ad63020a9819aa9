// SPDX-License-Identifier: Apache-2.0
/// @file
/// The rotary frequencies.
#pragma once

#include <cmath>
#include <cstdint>

#include <tessera/fsdp/device/compute/rope.hpp>

#include "../host_device.hpp"

namespace fsdp::device {

/// Returns the radians per position of pair `pair` of a head of `head_dim`. It is in double, since a float angle is
/// wrong by 1e-3 at position 10^4. Scaling follows the papers: it depends on the wavelength (llama3) or on the pair's
/// index (yarn).
FSDP_BOTH double rotary_frequency(double theta, const RotaryScaling& scaling, std::int64_t pair,
                                  std::int64_t head_dim) {
  using Kind = RotaryScaling::Kind;
  const double exponent = -2.0 * static_cast<double>(pair) / static_cast<double>(head_dim);
  const double frequency = pow(theta, exponent), slow = frequency / scaling.factor;
  if (scaling.kind == Kind::none) return frequency;
  if (scaling.kind == Kind::linear) return slow;
  constexpr double two_pi = 6.283185307179586;
  const double at = scaling.kind == Kind::llama3 ? scaling.original * frequency / two_pi : static_cast<double>(pair);
  double share = (at - scaling.low) / (scaling.high - scaling.low);
  share = share < 0 ? 0 : share > 1 ? 1 : share;
  const double kept = scaling.kind == Kind::llama3 ? share : 1 - share;  // weight of the unscaled frequency
  return kept * frequency + (1 - kept) * slow;
}

}  // namespace fsdp::device
