// SPDX-License-Identifier: Apache-2.0
/// @file
/// JSON of records and of counts of collectives, for metrics, digests, traces and plans.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include <tessera/comm/monitor.hpp>

namespace fsdp::report {

/// Returns an object in one line; bytes that are not UTF-8, such as in paths, become U+FFFD.
inline std::string json_text(const nlohmann::ordered_json& object) {
  return object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

/// Returns {axis: {kind: {"calls": ..., "bytes": ...}}}. Axes and kinds without a call are omitted.
inline nlohmann::ordered_json json_of(const comm::MeshTraffic& traffic) {
  auto object = nlohmann::ordered_json::object();
  comm::MeshTraffic::visit(traffic, [&](const char* axis, const comm::Traffic& counted) {
    for (const comm::Op op : comm::all_ops)
      if (counted[op].calls > 0)
        object[axis][std::string(name_of(op))] = {{"calls", counted[op].calls}, {"bytes", counted[op].bytes}};
  });
  return object;
}

}  // namespace fsdp::report
