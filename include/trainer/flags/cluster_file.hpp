// SPDX-License-Identifier: Apache-2.0
/// @file
/// Reads the cluster of `--cluster`: a predefined one, or a TOML file with a key for each value of plan::Cluster.
#pragma once

#include <cstdint>
#include <string>

#include <tessera/fsdp/plan/cluster.hpp>

namespace fsdp::train {

/// Returns the predefined cluster `name` or, if there is none, the cluster in the file `name`. `ranks`: replaces its
/// own number of ranks; 0 keeps it. Throws InputError, which identifies file and key, for an unknown, missing or
/// impossible value, or if the ranks do not fill the nodes. A cluster of one node needs no network.
plan::Cluster read_cluster(const std::string& name, std::int64_t ranks = 0);

}  // namespace fsdp::train
