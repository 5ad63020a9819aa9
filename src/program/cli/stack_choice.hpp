// SPDX-License-Identifier: Apache-2.0
/// @file
/// The policies as values: parses and prints their flags, and selects the compiled type. To add a communicator: its
/// kind and name here, and its type in cmake/stacks.cmake. To add a strategy: add it to a type of AnyStrategy
/// (tessera/fsdp/sharding/run_time.hpp); it lists its own name and numbers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/fsdp/buffer/layout_policies.hpp>
#include <tessera/fsdp/core/policy_text.hpp>
#include <tessera/fsdp/sharding/run_time.hpp>
#include <tessera/fsdp/sharding/strategies.hpp>
#include <tessera/tiling/policies.hpp>

namespace fsdp::cli {

/// The strategy types that stacks are compiled with: FSDP_STRATEGY(type) for each.
#define FSDP_STRATEGIES                          \
  FSDP_STRATEGY(fsdp::RunTimeAny)                \
  FSDP_STRATEGY(fsdp::RunTimeHybridFull)         \
  FSDP_STRATEGY(fsdp::Offload<fsdp::RunTimeAny>) \
  FSDP_STRATEGY(fsdp::Offload<fsdp::RunTimeHybridFull>)

/// Values of --layout; `own` is the strategy's own layout.
struct LayoutChoice {
  enum class Kind : std::uint8_t { own, per_parameter, flat, rows, owned, blocks };
  using enum Kind;
  Kind kind = own;
  std::int64_t elements = 0;  ///< of buffer::Blocks

  constexpr LayoutChoice(Kind value = own, std::int64_t count = 0) : kind(value), elements(count) {}
  friend bool operator==(const LayoutChoice&, const LayoutChoice&) = default;
};

/// Values of --sharding, --layout and --sharding-of.
struct ShardingChoice {
  AnyStrategy strategy = {};
  LayoutChoice layout = LayoutChoice::own;     ///< not part of the text of --sharding
  std::vector<On<ShardingChoice>> units = {};  ///< --sharding-of: other strategies of some tensors, without `units`

  friend bool operator==(const ShardingChoice& a, const ShardingChoice& b);
};

/// Parses the text of --sharding. Throws InputError, which suggests the nearest name.
ShardingChoice parse_sharding(std::string_view text);
/// The same for a text with ":layout=LAYOUT" and with "PATTERN=(STRATEGY)" as in the text of a RunTimeStrategy.
ShardingChoice parse_whole_sharding(std::string_view text);

/// Returns the layout; nullopt for the strategy's own.
std::optional<buffer::AnyLayout> layout_of(const ShardingChoice& choice);
/// Returns the number of pieces of a step; 0 if the strategy does not divide it.
int pieces_of(const ShardingChoice& choice);
/// Returns the fewest ranks that the strategies need: the ranks of one of their groups; 1 if they form none.
int fewest_ranks(const ShardingChoice& choice);

/// Returns the help text of --sharding.
std::string sharding_help();
/// Returns all kinds in one line, with their names in --sharding.
std::string sharding_kinds();

// Conversions for flags (tessera/trainer/flags/flag_set.hpp): the text of a value converts back to the same value.
void from_text(std::string_view flag, std::string_view text, ShardingChoice& value);
void from_text(std::string_view flag, std::string_view text, LayoutChoice& value);
void from_text(std::string_view flag, std::string_view text, On<ShardingChoice>& value);
std::string to_text(const ShardingChoice& value);
std::string to_text(const On<ShardingChoice>& value);
std::string to_text(LayoutChoice value);

/// Returns whether a stack's strategy type, one of FSDP_STRATEGIES, can represent the choice. --offload is a separate
/// choice. Throws InputError for strategies of units that place optimizer state differently, which no type represents.
template <class Sharding>
bool takes(const ShardingChoice& choice);

/// Returns the choice as a value of a stack's strategy type, which must be able to represent it.
template <class Sharding>
Sharding sharding_of(const ShardingChoice& choice);

/// Values of --precision.
enum class PrecisionChoice : std::uint8_t { fp32, bf16, bf16_wire };

/// Values of --offload: the data that are in host memory.
enum class OffloadChoice : std::uint8_t { none, optimizer };

/// Values of --comm. A name with :N is a communicator for which the program itself starts N ranks.
struct CommChoice {
  enum class Kind : std::uint8_t { self, threads, mpi, nccl };
  static constexpr std::array<std::string_view, 4> names = {"self", "threads:N", "mpi", "nccl"};
  Kind kind = Kind::threads;
  std::int64_t ranks = 1;  ///< number of ranks for a name with :N; otherwise the launcher determines it

  std::string_view name() const { return names[static_cast<std::size_t>(kind)]; }
  bool counts() const { return name().ends_with(":N"); }

  friend bool operator==(const CommChoice&, const CommChoice&) = default;
};

/// The policies of every sub-command that uses a stack.
struct StackChoice {
  ShardingChoice sharding = {};
  PrecisionChoice precision = PrecisionChoice::bf16;
  bool has_float_weights = false;  ///< --precision-of is given (UnitOptions::precision); its flag sets it
  OffloadChoice offload = OffloadChoice::none;
  tiling::RunTimeTiling tiling = {};
  CommChoice comm = {};

  friend bool operator==(const StackChoice&, const StackChoice&) = default;
};

/// Returns the text of the stack's precision: "bf16+fp32" with float weights next to bf16 ones.
std::string precision_text(const StackChoice& choice);
/// Returns the communicator's name without its number of ranks, as in the name of its header.
std::string name_of_comm(const CommChoice& comm);

/// The contents of a program: each communicator is combined with each precision and every strategy.
struct CompiledParts {
  std::vector<std::string> comms, precisions;
};
/// Lists the contents, one line per flag.
std::string text_of(const CompiledParts& has);
/// Returns which part of a stack the program lacks, and how to build it; empty if it lacks none.
std::string missing_parts_text(const StackChoice& asked, const CompiledParts& has);
/// Throws InputError with the text of `missing_parts_text` unless it is empty.
void require_built(const StackChoice& asked, const CompiledParts& has);

/// Returns the tiling. Throws InputError for budget:auto, which only a trainer can resolve.
const tiling::RunTimeTiling& known_tiling(const tiling::RunTimeTiling& tiling);

// Conversions for flags (tessera/trainer/flags/flag_set.hpp): the text of a value converts back to the same value. An
// unknown name is an InputError, which suggests the nearest one.
void from_text(std::string_view flag, std::string_view text, PrecisionChoice& value);
void from_text(std::string_view flag, std::string_view text, OffloadChoice& value);
void from_text(std::string_view flag, std::string_view text, CommChoice& value);
std::string to_text(PrecisionChoice value);
std::string to_text(OffloadChoice value);
std::string to_text(const CommChoice& value);

}  // namespace fsdp::cli

namespace fsdp::tiling {

/// Conversions for --tiling.
void from_text(std::string_view flag, std::string_view text, RunTimeTiling& value);
std::string to_text(const RunTimeTiling& value);

}  // namespace fsdp::tiling
