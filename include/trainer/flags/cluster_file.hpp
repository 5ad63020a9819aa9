// SPDX-License-Identifier: Apache-2.0
/// @file
/// The cluster that `--cluster` names: a known one, or a TOML file with a key for each value of plan::Cluster.
#pragma once

#include <cstdint>
#include <string>

#include <tessera/fsdp/plan/cluster.hpp>

namespace fsdp::train {

/// Returns the cluster called `name` or, if none is, that of the file `name`. `ranks`: in place of the cluster's own;
/// 0: those. Throws InputError with one sentence, which names the file and the key, if a key is unknown, is missing or
/// has a value that no machine has, or if the ranks do not fill the nodes. A cluster of one node needs no network.
plan::Cluster read_cluster(const std::string& name, std::int64_t ranks = 0);

}  // namespace fsdp::train
