// SPDX-License-Identifier: Apache-2.0
/// @file
/// Where the ranks of a calibration are, and what their processes take before it.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace fsdp::bench {

/// How ranks lie in nodes: equally many in each, node by node, as plans have them.
struct Places {
  int nodes = 1;
  int per_node = 1;
};
/// Returns the places of ranks on these hosts, by rank. Throws InputError if plans have no such places.
Places places_of(std::span<const std::string> hosts);

/// Returns the bytes of this process that are in memory.
std::int64_t resident_bytes();

}  // namespace fsdp::bench
