// SPDX-License-Identifier: Apache-2.0
/// @file
/// Synthetic time series with a season, a slow oscillation and noise, cut into consecutive windows; the last are held
/// out.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include <tessera/fsdp/core/hash.hpp>
#include <tessera/trainer/data/source.hpp>

#include "batch.hpp"

namespace forecaster {

/// A Source (see tessera/trainer/data/source.hpp). The numbers are the same on every rank and in every run.
struct Seasons {
  using Batch = forecaster::Batch;
  struct Storage {
    std::int64_t sequences = 0;
    std::shared_ptr<std::byte> memory = {};
  };

  std::int64_t series = 4;
  std::int64_t length = 48;
  std::int64_t windows = 200;
  std::int64_t held_out = 20;

  std::int64_t training() const { return windows - held_out; }
  std::int64_t validation() const { return held_out; }
  std::int64_t sequence_length() const { return length; }
  std::string text() const { return std::to_string(series) + " series of " + std::to_string(windows * length); }

  /// Returns the value of series `which` at a time.
  float value(std::int64_t which, std::int64_t time) const {
    const auto noise = fsdp::mixed(static_cast<std::uint64_t>(time * series + which)) >> 40;  // 24 bits
    const double season = static_cast<double>(time) / static_cast<double>(8 + 5 * which);
    constexpr double circle = 6.283185307179586;
    return static_cast<float>(std::sin(circle * season) + 0.5 * std::cos(circle * season / 9) +
                              0.05 * (static_cast<double>(noise) * 0x1p-23 - 1));
  }

  Storage storage(std::int64_t sequences, fsdp::data::Allocate allocate) const {
    return {sequences, allocate(2 * sequences * length * series * std::int64_t{sizeof(float)})};
  }
  /// Fills inputs and targets; the targets of a row are the next row. Sequences without a window get unknown targets.
  Batch fill(Storage& storage, std::span<const std::int64_t> chosen) const {
    const std::int64_t rows = storage.sequences * length;
    auto* const inputs = reinterpret_cast<float*>(storage.memory.get());
    float* const targets = inputs + rows * series;
    for (std::int64_t row = 0; row < rows; ++row) {
      const auto sequence = static_cast<std::size_t>(row / length);
      const bool missing = sequence >= chosen.size();
      const std::int64_t time = (missing ? 0 : chosen[sequence]) * length + row % length;
      for (std::int64_t i = 0; i < series; ++i) {
        inputs[row * series + i] = value(i, time);
        targets[row * series + i] = missing ? NAN : value(i, time + 1);
      }
    }
    return {.inputs = {inputs, {rows, series}}, .targets = {targets, {rows, series}}, .sequences = storage.sequences};
  }
};
static_assert(fsdp::data::check_source<Seasons>());

}  // namespace forecaster
