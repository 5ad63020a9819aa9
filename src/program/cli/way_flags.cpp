// SPDX-License-Identifier: Apache-2.0
#include "way_flags.hpp"

#include <utility>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/trainer/flags/offload_flag.hpp>
#include <tessera/trainer/flags/sequence_flag.hpp>

namespace fsdp::cli {
namespace {

constexpr std::string_view is_on = "true";

}  // namespace

WayFlags flags_of_way(const Train& train) {
  const auto& options = train.options;
  const StackChoice& stack = train.stack;
  const train::OffloadFlag offload{.optimizer = stack.offload == OffloadChoice::optimizer,
                                   .inputs = options.units.offload_inputs};
  WayFlags flags = {{"sharding", to_text(stack.sharding)}};
  const auto add = [&](bool differs, const char* name, std::string value) {
    if (differs) flags.push_back({name, std::move(value)});
  };
  add(stack.sharding.layout != LayoutChoice::own, "layout", to_text(stack.sharding.layout));
  add(options.sequence.ranks > 1, "sequence", to_text(options.sequence));
  add(options.grad_accum > 1, "grad-accum", message(options.grad_accum));
  add(options.units.recompute, "recompute", std::string(is_on));
  add(offload != train::OffloadFlag{}, "offload", to_text(offload));
  add(stack.tiling != tiling::RunTimeTiling{}, "tiling", to_text(stack.tiling));
  return flags;
}

std::string command_line(const WayFlags& flags) {
  std::string text;
  for (const auto& [name, value] : flags)
    text += message(text.empty() ? "--" : " --", name, value == is_on ? "" : " " + value);
  return text;
}

}  // namespace fsdp::cli
