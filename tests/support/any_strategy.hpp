// SPDX-License-Identifier: Apache-2.0
/// @file
/// Strategies of the library by their texts.
#pragma once

#include <string_view>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/sharding/run_time.hpp>

namespace fsdp::test {

/// Returns the strategy of a text such as "hybrid:2:zero3"; fsdp2 if it is empty. Throws InputError for other texts.
inline AnyStrategy any_strategy(std::string_view text) {
  if (text.empty()) return {};
  const auto strategy = read_strategy<AnyStrategy>(text);
  require<InputError>(strategy.has_value(), "no strategy is called '", text, "'");
  return *strategy;
}

}  // namespace fsdp::test
