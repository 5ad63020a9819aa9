// SPDX-License-Identifier: Apache-2.0
/// @file
/// Groups of parameters as text (--group): "* role=table weight-decay=0", "*norm* lr=0.1 clip=1", "*embed* frozen".
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>

#include <tessera/fsdp/core/config_values.hpp>
#include <tessera/fsdp/module/units.hpp>

namespace fsdp {

/// Conversions for flags (tessera/trainer/flags/flag_set.hpp). The first word is the pattern of parameter names; if it
/// contains a =, there is no pattern and the group contains all parameters. The other words are `frozen` and key=value.
/// Throws InputError for other words, and like OptimizerGroup::check.
/// @{
void from_text(std::string_view flag, std::string_view text, OptimizerGroup& value);
std::string to_text(const OptimizerGroup& value);
/// @}

}  // namespace fsdp

namespace fsdp::train {

/// The two parts of to_text: the selection of a group's parameters, and the values that the group sets.
/// @{
std::string selection_text(const OptimizerGroup& group);
std::string values_text(const OptimizerGroup& group);
/// @}
/// Returns the values that each group sets, by the group's selection.
ConfigValues values_of_groups(std::span<const OptimizerGroup> groups);
/// Returns the groups in a run's record: the values by selection. `text`: lines of to_text.
std::map<std::string, std::string> recorded_groups(const std::string& text);

}  // namespace fsdp::train
