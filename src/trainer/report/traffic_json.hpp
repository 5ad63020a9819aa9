// SPDX-License-Identifier: Apache-2.0
/// @file
/// Counts of collectives as JSON, for metrics and plans.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <tessera/comm/traffic.hpp>

namespace fsdp::report {

/// Returns {axis: {kind: {"calls": ..., "bytes": ...}}}. Axes and kinds without a call are left out.
nlohmann::ordered_json json_of(const comm::MeshTraffic& traffic);

}  // namespace fsdp::report
