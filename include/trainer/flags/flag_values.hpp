// SPDX-License-Identifier: Apache-2.0
/// @file
/// Values of flags that have a syntax of their own: numbers of bytes, --group, --offload, --sequence and --cluster.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include <tessera/fsdp/core/named_values.hpp>
#include <tessera/fsdp/module/units.hpp>
#include <tessera/fsdp/plan/cluster.hpp>
#include <tessera/fsdp/sharding/sequence.hpp>

namespace fsdp {

/// Conversions for flags. The first word is the pattern of parameter names; if it contains a =, the group contains all
/// parameters. The other words are `frozen` and key=value. Throws InputError as OptimizerGroup::check does.
void from_text(std::string_view flag, std::string_view text, OptimizerGroup& value);
std::string to_text(const OptimizerGroup& value);  ///< the inverse

/// Conversions for flags: "whole", "ulysses:K" and "ulysses:K:parts=P".
void from_text(std::string_view flag, std::string_view text, Ulysses& value);
std::string to_text(const Ulysses& value);  ///< the inverse

}  // namespace fsdp

namespace fsdp::train {

/// Returns the number of bytes; 0 if the text is not such a number, is not positive, or does not fit into an int64.
std::int64_t bytes_of(std::string_view text);

/// The same, but throws an InputError that identifies the flag instead of returning 0.
std::int64_t parse_bytes(std::string_view flag, std::string_view text);

std::string selection_text(const OptimizerGroup& group);  ///< the part of to_text that selects parameters
std::string values_text(const OptimizerGroup& group);     ///< the rest, the values that the group sets
/// Returns the values that each group sets, by the group's selection.
ConfigValues values_of_groups(std::span<const OptimizerGroup> groups);
/// Returns the groups in a run's record: the values by selection. `text`: lines of to_text.
std::map<std::string, std::string> recorded_groups(const std::string& text);

/// The value of --offload, for every program.
struct OffloadFlag {
  bool optimizer = false;  ///< main weights and optimizer state; depends on the stack's strategy (Offload)
  double inputs = 0;       ///< share of the block inputs, from 0 to 1 (UnitOptions::offload_inputs)

  friend bool operator==(const OffloadFlag&, const OffloadFlag&) = default;
};

/// Conversions for flags: "none", or "optimizer", "inputs" or "inputs:SHARE", or both with a comma. SHARE is a fraction
/// above 0 and at most 1, or percents.
void from_text(std::string_view flag, std::string_view text, OffloadFlag& value);
std::string to_text(const OffloadFlag& value);  ///< the inverse

/// The --help text of `inputs` in a program that trains.
inline constexpr const char* offloaded_inputs_help =
    "inputs of recomputed blocks, of all or a share of them as 0.25 or 25%, are in host memory until their backward";

/// The --help text of --sequence.
inline constexpr const char* sequence_help =
    "whole | ulysses:K[:parts=P] (K consecutive ranks share each sequence: each has a part of its rows, and a part of "
    "the heads in attention, which is done in P parts, a few heads at a time; without P in as many as a "
    "tiling's budget asks for, else in one)";

/// Throws InputError if ranks share sequences but the stack's type does not (`shards`: Stack::Sequence::shards).
void require_stack_shards(const Ulysses& sequence, bool shards);

/// Returns the predefined cluster `name` or, if there is none, the cluster in the file `name`. `ranks`: replaces its
/// own number of ranks; 0 keeps it. Throws InputError, which identifies file and key, for an unknown, missing or
/// impossible value, or if the ranks do not fill the nodes. A cluster of one node needs no network.
plan::Cluster read_cluster(const std::string& name, std::int64_t ranks = 0);

}  // namespace fsdp::train
