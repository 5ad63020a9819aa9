// SPDX-License-Identifier: Apache-2.0
/// @file
/// The flags that `--fit` chooses: of a way to train those that are not the defaults.
#pragma once

#include <string>
#include <vector>

#include "commands.hpp"

namespace fsdp::cli {

/// A flag and its value.
struct WayFlag {
  std::string name;  ///< without dashes
  std::string value;
};
using WayFlags = std::vector<WayFlag>;

/// Returns the flags of a way; others that --fit could choose have their defaults.
WayFlags flags_of_way(Train train);
/// Returns them as a command line has them: "--sharding fsdp2 --grad-accum 2 --recompute".
std::string command_line(const WayFlags& flags);

}  // namespace fsdp::cli
