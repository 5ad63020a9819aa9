// SPDX-License-Identifier: Apache-2.0
/// @file
/// The program's sharding strategies: parses and prints `--sharding` and `--layout`, and selects the compiled type.
///
/// A strategy itself lists its name and numbers (tessera/fsdp/core/policy_parts.hpp). To add one to the program: add it
/// to a type of AnyStrategy (tessera/fsdp/sharding/run_time.hpp).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

#include <tessera/fsdp/buffer/any_layout.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/policy_parts.hpp>
#include <tessera/fsdp/sharding/run_time.hpp>
#include <tessera/fsdp/sharding/strategies.hpp>

namespace fsdp::cli {

/// The strategy types that stacks are compiled with: FSDP_STRATEGY(type) for each.
#define FSDP_STRATEGIES                          \
  FSDP_STRATEGY(fsdp::RunTimeAny)                \
  FSDP_STRATEGY(fsdp::RunTimeHybridFull)         \
  FSDP_STRATEGY(fsdp::Offload<fsdp::RunTimeAny>) \
  FSDP_STRATEGY(fsdp::Offload<fsdp::RunTimeHybridFull>)

/// Values of --layout; `own` is the strategy's own layout.
enum class LayoutChoice : std::uint8_t { own, per_parameter, flat, rows, owned };

/// Values of --sharding and --layout.
struct ShardingChoice {
  AnyStrategy strategy = {};
  LayoutChoice layout = LayoutChoice::own;  ///< not part of the text of --sharding

  friend bool operator==(const ShardingChoice& a, const ShardingChoice& b) {
    return listed_text(a.strategy) == listed_text(b.strategy) && a.layout == b.layout;
  }
};

/// Parses the text of --sharding. Throws InputError, which suggests the nearest name.
ShardingChoice parse_sharding(std::string_view text);

/// Returns the layout if it differs from the strategy's own, else `own`.
LayoutChoice other_layout(const ShardingChoice& choice);
/// The same as a value; nullopt for the strategy's own layout.
std::optional<buffer::AnyLayout> layout_of(const ShardingChoice& choice);
/// Returns the number of pieces of a step; 0 if the strategy does not divide it.
int pieces_of(const ShardingChoice& choice);
/// Returns the fewest ranks that the strategy needs: the ranks of one of its groups; 1 if it forms none.
int fewest_ranks(const ShardingChoice& choice);

/// Returns the help text of --sharding.
std::string sharding_help();
/// Returns all kinds in one line, with their names in --sharding.
std::string sharding_kinds();

// Conversions for flags (tessera/trainer/flags/flag_set.hpp): the text of a value converts back to the same value.
void from_text(std::string_view flag, std::string_view text, ShardingChoice& value);
void from_text(std::string_view flag, std::string_view text, LayoutChoice& value);
std::string to_text(const ShardingChoice& value);
std::string to_text(LayoutChoice value);

/// Returns whether a stack's strategy type can represent the choice. --offload is a separate choice.
template <class Sharding>
bool takes(const ShardingChoice& choice) {
  return std::visit([]<class S>(const S&) { return std::is_base_of_v<S, Sharding>; }, choice.strategy);
}

/// Returns the choice as a value of a stack's strategy type, which must be able to represent it.
template <class Sharding>
Sharding sharding_of(const ShardingChoice& choice) {
  require(takes<Sharding>(choice), "--sharding ", to_text(choice), " is no strategy of this stack");
  Sharding sharding;
  const auto assign = [&]<class S>(const S& strategy) {
    if constexpr (std::is_base_of_v<S, Sharding>) static_cast<S&>(sharding) = strategy;
  };
  std::visit(assign, choice.strategy);
  if constexpr (requires { sharding.other_layout; })
    sharding.other_layout = layout_of(choice);
  else
    sharding.inner.other_layout = layout_of(choice);
  return sharding;
}

}  // namespace fsdp::cli
