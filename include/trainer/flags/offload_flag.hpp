// SPDX-License-Identifier: Apache-2.0
/// @file
/// The share of block inputs in host memory as text (--offload): "inputs", "inputs:0.25", "inputs:25%".
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <tessera/trainer/flags/flag_set.hpp>

namespace fsdp::train {

/// Returns the share that a text says (UnitOptions::offload_inputs): all of "inputs", or a fraction above 0 and at most
/// 1, or percents; nothing for a text that does not begin with "inputs". Throws InputError for any other share.
std::optional<double> input_share(std::string_view flag, std::string_view text);
/// Returns the text of a share above 0: "inputs" or, say, "inputs:0.25".
std::string input_share_text(double share);

/// Adds --offload for a program whose strategy is fixed: inputs in host memory alone. `sharding`: the strategy.
void bind_input_share(FlagSet& flags, double& share, const std::string& sharding);

}  // namespace fsdp::train
