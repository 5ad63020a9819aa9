// SPDX-License-Identifier: Apache-2.0
#include "../json_part.hpp"

namespace fsdp::text {

Decoder read_decoder(const JsonPart& part) {
  std::vector<Decoder::Step> steps;
  for (const JsonPart& step : part.steps("decoders")) {
    const std::string type = step.type();
    if (type == "ByteLevel") {
      steps.emplace_back(DecodeByteLevel{});
    } else if (type == "ByteFallback") {
      steps.emplace_back(DecodeByteFallback{});
    } else if (type == "Fuse") {
      steps.emplace_back(DecodeFuse{});
    } else if (type == "Replace") {
      steps.emplace_back(read_replace(step));
    } else if (type == "Metaspace") {
      const std::string scheme = step.has("prepend_scheme") ? step.text("prepend_scheme") : "always";
      const bool prepended = scheme != "never" && step.flag("add_prefix_space", true);
      steps.emplace_back(DecodeMetaspace{.replacement = step.character("replacement"), .prepended = prepended});
    } else if (type == "Strip") {
      constexpr std::int64_t most = 1000;
      steps.emplace_back(DecodeStrip{.content = step.character("content"),
                                     .start = static_cast<std::size_t>(step.number("start", most)),
                                     .stop = static_cast<std::size_t>(step.number("stop", most))});
    } else {
      step.refuse(
          "\"", type,
          "\" is not supported; there are ByteLevel, Metaspace, ByteFallback, Fuse, Replace, Strip and Sequence");
    }
  }
  return Decoder(std::move(steps), false);
}

}  // namespace fsdp::text
