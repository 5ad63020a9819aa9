// SPDX-License-Identifier: Apache-2.0
#include "way_flags.hpp"

#include <utility>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/trainer/flags/offload_flag.hpp>
#include <tessera/trainer/flags/sequence_flag.hpp>

#include "../../fsdp/core/split.hpp"

namespace fsdp::cli {
namespace {

constexpr char between_ways = '\n', between_flags = ' ', before_value = '=';  // no value has any of the first two
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

void give(train::FlagSet& flags, const WayFlags& way) {
  for (const auto& [name, value] : way) {
    train::Flag* const flag = flags.find(name);
    require(flag != nullptr, "--", name, " is no flag of this command");
    flag->give({value});
    flag->given = true;
  }
}

Train with_flags(const Train& asked, const WayFlags& way) {
  Train train = asked;
  train::FlagSet flags;
  bind(flags, train);
  give(flags, way);
  return train;
}

std::string text_of_ways(std::span<const WayFlags> ways) {
  std::string text;
  for (const WayFlags& way : ways) {
    if (!text.empty()) text += between_ways;
    for (std::size_t i = 0; i < way.size(); ++i)
      text += (i > 0 ? std::string(1, between_flags) : "") + way[i].name + before_value + way[i].value;
  }
  return text;
}

std::vector<WayFlags> ways_of_text(std::string_view text) {
  std::vector<WayFlags> ways;
  for (const std::string_view line : split_at(text, between_ways)) {
    WayFlags& way = ways.emplace_back();
    for (const std::string_view flag : split_at(line, between_flags)) {
      const std::size_t end = flag.find(before_value);
      require(end != std::string_view::npos, "a way has the flag '", flag, "', which has no value");
      way.push_back({std::string(flag.substr(0, end)), std::string(flag.substr(end + 1))});
    }
  }
  return ways;
}

}  // namespace fsdp::cli
