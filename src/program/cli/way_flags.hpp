// SPDX-License-Identifier: Apache-2.0
/// @file
/// The flags that `--fit` chooses: of a way to train those that are not the defaults.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "commands.hpp"

namespace fsdp::cli {

/// A flag and its value.
struct WayFlag {
  std::string name;  ///< without dashes
  std::string value;

  friend bool operator==(const WayFlag&, const WayFlag&) = default;
};
using WayFlags = std::vector<WayFlag>;

/// Returns the flags of a way; others that --fit could choose have their defaults.
WayFlags flags_of_way(const Train& train);
/// Returns them as a command line has them: "--sharding fsdp2 --grad-accum 2 --recompute".
std::string command_line(const WayFlags& flags);

/// Sets flags as if the user had given them.
void give(train::FlagSet& flags, const WayFlags& way);
/// Returns a command with a way's flags.
Train with_flags(const Train& asked, const WayFlags& way);

/// Converts ways to text without NUL, and back. Rank 0 tells the others of them so.
/// @{
std::string text_of_ways(std::span<const WayFlags> ways);
std::vector<WayFlags> ways_of_text(std::string_view text);
/// @}

}  // namespace fsdp::cli
