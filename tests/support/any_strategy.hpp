// SPDX-License-Identifier: Apache-2.0
/// @file
/// The library's strategies, parsed from text.
#pragma once

#include <string_view>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/sharding/run_time.hpp>

namespace fsdp::test {

/// Parses a strategy such as "hybrid:2:zero3"; fsdp2 if the text is empty. Throws InputError for an unknown strategy.
inline AnyStrategy any_strategy(std::string_view text) {
  if (text.empty()) return {};
  const auto strategy = read_strategy<AnyStrategy>(text);
  require<InputError>(strategy.has_value(), "no strategy is called '", text, "'");
  return *strategy;
}

}  // namespace fsdp::test
