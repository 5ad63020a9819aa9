// SPDX-License-Identifier: Apache-2.0
#include "traffic_json.hpp"

#include <string>

#include <nlohmann/json.hpp>

namespace fsdp::report {

nlohmann::ordered_json json_of(const comm::MeshTraffic& traffic) {
  auto object = nlohmann::ordered_json::object();
  comm::MeshTraffic::visit(traffic, [&](const char* axis, const comm::Traffic& counted) {
    for (const comm::Op op : comm::all_ops)
      if (counted[op].calls > 0)
        object[axis][std::string(name_of(op))] = {{"calls", counted[op].calls}, {"bytes", counted[op].bytes}};
  });
  return object;
}

}  // namespace fsdp::report
