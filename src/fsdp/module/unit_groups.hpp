// SPDX-License-Identifier: Apache-2.0
/// @file
/// The checks and the selections that group_parameters starts with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <tessera/fsdp/module/units.hpp>

namespace fsdp {

/// Throw InputError for units that cannot be sharded (a unit or a tensor without a name, or tensors of different shapes
/// with the same name), and for options out of their range.
/// @{
void check(std::span<const Unit> units);
void check(const UnitOptions& options, std::span<const Unit> units);
/// @}

/// Returns the sum of the parameters' elements.
std::int64_t elements_of(std::span<const Parameter> parameters);
/// Returns the names of all parameters, each once.
std::vector<std::string> parameter_names(std::span<const Unit> units);

/// Return, for every parameter of every unit, the index of its strategy (StrategyPart::same_as), and whether it is
/// float next to 16-bit weights. Throw InputError for a pattern, or an alternative of one, that selects nothing, for a
/// parameter that several patterns select, and for a pattern of strategies that selects a replicated parameter
/// (`replicated`: UnitOptions::replicated).
/// @{
std::vector<std::vector<std::size_t>> strategies_of(std::span<const Unit> units, std::span<const StrategyPart> parts,
                                                    const std::vector<std::string>& replicated);
std::vector<std::vector<bool>> floats_of(std::span<const Unit> units, const FloatWeights& floats);
/// @}

}  // namespace fsdp
