// SPDX-License-Identifier: Apache-2.0
/// @file
/// `--sequence`: the number of ranks that share each sequence.
#pragma once

#include <string>
#include <string_view>

#include <tessera/fsdp/sharding/sequence.hpp>

namespace fsdp {

/// Conversions for flags (tessera/trainer/flags/flag_set.hpp): "whole", "ulysses:K" and "ulysses:K:parts=P". Throws
/// InputError for other texts.
/// @{
void from_text(std::string_view flag, std::string_view text, Ulysses& value);
std::string to_text(const Ulysses& value);
/// @}

}  // namespace fsdp

namespace fsdp::train {

/// The --help text of --sequence.
inline constexpr const char* sequence_help =
    "whole | ulysses:K[:parts=P] (K consecutive ranks share each sequence: each has a part of its rows, and a part of "
    "the heads in attention, which is done in P parts, a few heads at a time; without P in as many as a "
    "tiling's budget asks for, else in one)";

/// Throws InputError if ranks share sequences but the stack's type does not support it. `shards`:
/// Stack::Sequence::shards.
void require_stack_shards(const Ulysses& sequence, bool shards);

}  // namespace fsdp::train
