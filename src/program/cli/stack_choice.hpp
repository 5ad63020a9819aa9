// SPDX-License-Identifier: Apache-2.0
/// @file
/// The policies as values: parses and prints `--sharding`, `--precision`, `--tiling` and `--comm`.
///
/// These values choose a compiled stack; the policies' types are in sharding/, precision/, tiling/ and comm/.
/// To add a name: add its kind here, and its parser and name in src/program/cli/stack_choice.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <tessera/tiling/policies.hpp>

namespace fsdp::cli {

/// --layout; `own` is the strategy's own layout.
enum class LayoutChoice : std::uint8_t { own, per_parameter, flat, rows, owned };

/// --sharding and --layout.
struct ShardingChoice {
  enum class Kind : std::uint8_t { fsdp2, zero1, zero2, zero3, hybrid, replicated };
  Kind kind = Kind::fsdp2;
  Kind inner = Kind::fsdp2;         ///< hybrid: the strategy inside a group
  bool reshard = true;              ///< fsdp2, also inside hybrid: release the weights after forward
  std::int64_t number = 0;          ///< fsdp2:K and hybrid:K: ranks per group; 0: not given
  bool full = false;                ///< hybrid: shard the optimizer over groups, too
  bool deferred = false;            ///< fsdp2, also inside hybrid: reduce after the last micro-batch only
  std::int64_t prefetch_depth = 1;  ///< fsdp2, zero3, also inside hybrid: prefetch distance in computations
  std::int64_t persistence = 0;     ///< zero3, also inside hybrid: tensors up to so many elements stay gathered
  std::int64_t live_bound = 0;      ///< zero3, also inside hybrid: most elements gathered at a time; 0: no bound
  std::int64_t pieces = 0;          ///< fsdp2, zero1, zero2, zero3: of a step, on any number of ranks; 0: not given
  LayoutChoice layout = LayoutChoice::own;  ///< --layout; not part of the text of --sharding

  friend bool operator==(const ShardingChoice&, const ShardingChoice&) = default;
};

/// --precision.
enum class PrecisionChoice : std::uint8_t { fp32, bf16, bf16_wire };

/// --offload: what is kept in host memory.
enum class OffloadChoice : std::uint8_t { none, optimizer };

/// --comm.
struct CommChoice {
  enum class Kind : std::uint8_t { self, threads, mpi, nccl };
  Kind kind = Kind::threads;
  std::int64_t ranks = 1;  ///< for threads; for mpi and nccl the launcher knows it

  friend bool operator==(const CommChoice&, const CommChoice&) = default;
};

/// --tiling.
struct TilingChoice {
  enum class Kind : std::uint8_t { off, tiles, tokens, budget };
  Kind kind = Kind::off;
  std::int64_t number = 0;  ///< tiles, tokens per tile, or bytes of the budget; a budget of 0 is budget:auto

  friend bool operator==(const TilingChoice&, const TilingChoice&) = default;
};

/// The policies that every sub-command with a stack takes.
struct StackChoice {
  ShardingChoice sharding;
  PrecisionChoice precision = PrecisionChoice::bf16;
  OffloadChoice offload = OffloadChoice::none;
  TilingChoice tiling;
  CommChoice comm;

  friend bool operator==(const StackChoice&, const StackChoice&) = default;
};

/// Parse the text of a flag. Throw InputError, which suggests the nearest name.
ShardingChoice parse_sharding(std::string_view text);
LayoutChoice parse_layout(std::string_view text);
PrecisionChoice parse_precision(std::string_view text);
OffloadChoice parse_offload(std::string_view text);
TilingChoice parse_tiling(std::string_view text);
CommChoice parse_comm(std::string_view text);

/// Returns the strategy's kind without its numbers, which is the name of its type: "fsdp2:K", "hybrid:K:full:zero3",
/// "zero2:pieces=V"; "fsdp2:layout=owned" if the layout is not the strategy's own.
std::string kind_name(const ShardingChoice& choice);
/// Returns the strategy inside a hybrid's groups.
ShardingChoice inner_of(const ShardingChoice& hybrid);
/// Returns the layout if it differs from the strategy's own, else `own`.
LayoutChoice other_layout(const ShardingChoice& choice);

/// Return the text that parses to the same value.
std::string name_of(const ShardingChoice& choice);
std::string name_of(LayoutChoice choice);
std::string name_of(PrecisionChoice choice);
std::string name_of(OffloadChoice choice);
std::string name_of(const TilingChoice& choice);
std::string name_of(const CommChoice& choice);

/// Returns the tiling policy. Throws InputError for budget:auto.
tiling::RunTime policy_of(const TilingChoice& choice);

/// The same for a trainer, which replaces `budget:auto` itself.
tiling::RunTime training_policy_of(const TilingChoice& choice);

// Conversions for flags (tessera/trainer/flags/flag_set.hpp).
void from_text(std::string_view flag, std::string_view text, ShardingChoice& value);
void from_text(std::string_view flag, std::string_view text, LayoutChoice& value);
void from_text(std::string_view flag, std::string_view text, PrecisionChoice& value);
void from_text(std::string_view flag, std::string_view text, OffloadChoice& value);
void from_text(std::string_view flag, std::string_view text, TilingChoice& value);
void from_text(std::string_view flag, std::string_view text, CommChoice& value);
std::string to_text(const ShardingChoice& value);
std::string to_text(LayoutChoice value);
std::string to_text(PrecisionChoice value);
std::string to_text(OffloadChoice value);
std::string to_text(const TilingChoice& value);
std::string to_text(const CommChoice& value);

}  // namespace fsdp::cli
