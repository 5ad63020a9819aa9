// SPDX-License-Identifier: Apache-2.0
/// @file
/// JSON of named values, of counts of collectives and of the parts of strategies, for metrics, digests and plans.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include <tessera/comm/monitor.hpp>
#include <tessera/fsdp/core/named_values.hpp>
#include <tessera/fsdp/plan/plan.hpp>

#include "../../fsdp/core/json/strict_json.hpp"

namespace fsdp::report {

/// Returns the values by their names.
inline nlohmann::ordered_json json_of(const ConfigValues& values) {
  auto object = nlohmann::ordered_json::object();
  for (const ConfigValue& each : values) std::visit([&](const auto& value) { object[each.name] = value; }, each.value);
  return object;
}

/// Returns {axis: {kind: {"calls": ..., "bytes": ...}}}. Axes and kinds without a call are omitted.
inline nlohmann::ordered_json json_of(const comm::MeshTraffic& traffic) {
  auto object = nlohmann::ordered_json::object();
  comm::MeshTraffic::visit(traffic, [&](const char* axis, const comm::Traffic& counted) {
    for (const comm::Op op : comm::all_ops)
      if (counted[op].calls > 0)
        object[axis][std::string(name_of(op))] =
            json_object({{"calls", counted[op].calls}, {"bytes", counted[op].bytes}});
  });
  return object;
}

/// Returns a list of the parts of a plan.
inline nlohmann::ordered_json json_of(const std::vector<plan::PartPlan>& parts) {
  auto list = nlohmann::ordered_json::array();
  for (const plan::PartPlan& part : parts)
    list.push_back(json_object({{"name", part.name},
                                {"dtype", std::string(name_of(part.dtype))},
                                {"tensors", part.tensors},
                                {"weight_bytes", part.weight_bytes},
                                {"gradient_bytes", part.gradient_bytes},
                                {"optimizer_bytes", part.optimizer_bytes},
                                {"gathered_bytes", part.gathered_bytes},
                                {"reduced_bytes", part.reduced_bytes}}));
  return list;
}

}  // namespace fsdp::report
