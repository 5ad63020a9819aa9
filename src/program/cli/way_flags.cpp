// SPDX-License-Identifier: Apache-2.0
#include "way_flags.hpp"

#include <string_view>

#include <tessera/fsdp/core/error.hpp>

namespace fsdp::cli {

WayFlags flags_of_way(Train train) {
  Train usual;
  train::FlagSet flags, defaults;
  bind(flags, train);
  bind(defaults, usual);
  WayFlags chosen;
  for (const std::string_view name :
       {"sharding", "layout", "sequence", "grad-accum", "recompute", "offload", "tiling"}) {
    const train::Texts texts = flags.find(name)->get();
    if (name == "sharding" || texts != defaults.find(name)->get()) chosen.push_back({std::string(name), texts.at(0)});
  }
  return chosen;
}

std::string command_line(const WayFlags& flags) {
  std::string text;
  for (const auto& [name, value] : flags)
    text += message(text.empty() ? "--" : " --", name, value == "true" ? "" : " " + value);
  return text;
}

}  // namespace fsdp::cli
