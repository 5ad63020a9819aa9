// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <string_view>

#include "../json_part.hpp"

namespace fsdp::text {
namespace {

constexpr std::string_view gpt2_pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

Split read_split(const JsonPart& part) {
  static const std::map<std::string, Delimiter> behaviors = {
      {"Removed", Delimiter::removed},
      {"Isolated", Delimiter::isolated},
      {"MergedWithPrevious", Delimiter::merged_with_previous},
      {"MergedWithNext", Delimiter::merged_with_next},
      {"Contiguous", Delimiter::contiguous},
  };
  const auto behavior = behaviors.find(part.text("behavior"));
  if (behavior == behaviors.end())
    part.refuse("\"Split\" has the behavior \"", part.text("behavior"),
                "\"; there are Removed, Isolated, MergedWithPrevious, MergedWithNext and Contiguous");
  const PatternText pattern = read_pattern_text(part);
  return {.pattern = pattern.literal ? RegularExpression::of_literal(pattern.text, part.source())
                                     : RegularExpression(pattern.text, part.source()),
          .behavior = behavior->second,
          .invert = part.flag("invert")};
}

Metaspace read_metaspace(const JsonPart& part) {
  Metaspace metaspace{.replacement = part.character("replacement")};
  const std::string scheme = part.has("prepend_scheme") ? part.text("prepend_scheme") : "always";
  const bool none = !part.flag("add_prefix_space", true);
  if (scheme == "never") {
    metaspace.prepend = Metaspace::Prepend::never;
  } else if (scheme == "first") {
    metaspace.prepend = Metaspace::Prepend::first;
  } else if (scheme != "always") {
    part.refuse("\"Metaspace\" has the prepend_scheme \"", scheme, "\"; there are always, first and never");
  }
  if (none && part.has("prepend_scheme") && scheme != "never")
    part.refuse("\"Metaspace\" has add_prefix_space false, and the prepend_scheme \"", scheme, "\"; write never");
  if (none) metaspace.prepend = Metaspace::Prepend::never;
  metaspace.split = part.flag("split", true);
  return metaspace;
}

ByteLevel read_byte_level(const JsonPart& part) {
  ByteLevel byte_level{.add_prefix_space = part.flag("add_prefix_space"), .pattern = {}};
  if (part.flag("use_regex", true)) byte_level.pattern.emplace_back(gpt2_pattern, part.source());
  return byte_level;
}

}  // namespace

PreTokenizer read_pre_tokenizer(const JsonPart& part) {
  std::vector<PreTokenizer::Step> steps;
  for (const JsonPart& step : part.steps("pretokenizers")) {
    const std::string type = step.type();
    if (!steps.empty() && std::holds_alternative<ByteLevel>(steps.back()))
      step.refuse("\"", type, "\" comes behind \"ByteLevel\", which must be the last");
    if (type == "Split") {
      steps.emplace_back(read_split(step));
    } else if (type == "Digits") {
      steps.emplace_back(Digits{step.flag("individual_digits")});
    } else if (type == "Metaspace") {
      for (const PreTokenizer::Step& other : steps)
        if (std::holds_alternative<Metaspace>(other)) step.refuse("\"Metaspace\" stands twice, which is not supported");
      steps.emplace_back(read_metaspace(step));
    } else if (type == "ByteLevel") {
      steps.emplace_back(read_byte_level(step));
    } else {
      step.refuse("\"", type, "\" is not supported; there are Split, ByteLevel, Digits, Metaspace and Sequence");
    }
  }
  return PreTokenizer(std::move(steps));
}

}  // namespace fsdp::text
