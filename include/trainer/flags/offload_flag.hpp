// SPDX-License-Identifier: Apache-2.0
/// @file
/// `--offload`: the tensors in host memory: the optimizer's, a share of the block inputs, or both.
#pragma once

#include <string>
#include <string_view>

namespace fsdp::train {

/// The value of --offload, for every program.
struct OffloadFlag {
  bool optimizer = false;  ///< main weights and optimizer state; depends on the stack's strategy (Offload)
  double inputs = 0;       ///< share of the block inputs, from 0 to 1 (UnitOptions::offload_inputs)

  friend bool operator==(const OffloadFlag&, const OffloadFlag&) = default;
};

/// Conversions for flags (tessera/trainer/flags/flag_set.hpp): "none", or "optimizer", "inputs" or "inputs:SHARE", or
/// both with a comma. SHARE is a fraction above 0 and at most 1, or percents. Throws InputError for other texts.
/// @{
void from_text(std::string_view flag, std::string_view text, OffloadFlag& value);
std::string to_text(const OffloadFlag& value);
/// @}

/// The --help text of `inputs` in a program that trains.
inline constexpr const char* offloaded_inputs_help =
    "inputs of recomputed blocks, of all or a share of them as 0.25 or 25%, are in host memory until their backward";

}  // namespace fsdp::train
