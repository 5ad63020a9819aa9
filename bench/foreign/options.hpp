// SPDX-License-Identifier: Apache-2.0
/// @file
/// The benches of a foreign loop and their options.
#pragma once

#include <cstdint>

namespace fsdp::bench {

/// What the command line says; 0 in `repeats` stands for the bench's own number.
struct ForeignOptions {
  std::int64_t repeats = 0;
  std::int64_t units = 64;     ///< of `use`
  std::int64_t pictures = 12;  ///< of a step of `unet`
  std::int64_t layers = 8;     ///< of `mlp`
  std::int64_t width = 1024;   ///< inputs and outputs of a layer
  std::int64_t rows = 512;     ///< of the batch, on each rank
  std::int64_t ranks = 2;      ///< of `mlp`

  std::int64_t repeats_or(std::int64_t own) const { return repeats > 0 ? repeats : own; }
};

/// Each prints its lines. bench/README.md says how each value is measured.
/// @{
void measure_use(const ForeignOptions& options);
void measure_unet(const ForeignOptions& options);
void measure_mlp(const ForeignOptions& options);
/// @}

}  // namespace fsdp::bench
