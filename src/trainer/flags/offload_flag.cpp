// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/flags/offload_flag.hpp>

#include <optional>
#include <vector>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/terminal_text.hpp>
#include <tessera/trainer/flags/flag_set.hpp>

#include "../../fsdp/core/numbers.hpp"
#include "../../fsdp/core/split.hpp"
#include "../../fsdp/core/value_names.hpp"

namespace fsdp::train {
namespace {

constexpr std::string_view none_name = "none", optimizer_name = "optimizer", inputs_name = "inputs";

/// Returns the share in a part of a text; nothing for a part that does not begin with "inputs". Throws InputError for
/// an invalid share.
std::optional<double> input_share(std::string_view flag, std::string_view text, std::string_view part) {
  if (part == inputs_name) return 1;
  if (!part.starts_with(inputs_name) || part[inputs_name.size()] != ':') return std::nullopt;
  std::string_view number = part.substr(inputs_name.size() + 1);
  const bool percents = number.ends_with('%');
  if (percents) number.remove_suffix(1);
  const double share = parsed<double>(number).value_or(0) / (percents ? 100 : 1);
  require<InputError>(share > 0 && share <= 1, "--", flag, " ", shortened(text),
                      ": the share of blocks must be above 0 and at most 1, or 100%; give one such as inputs:0.25");
  return share;
}

}  // namespace

void from_text(std::string_view flag, std::string_view text, OffloadFlag& value) {
  OffloadFlag found;
  if (text != none_name)
    for (const std::string_view part : split_at(text, ',')) {
      require<InputError>(part != none_name, "--", flag, " ", shortened(text),
                          ": none stands alone; leave it or the rest out");
      const std::optional<double> share = input_share(flag, text, part);
      if (!share && part != optimizer_name)
        refuse_unknown(flag, text,
                       std::vector<std::string>{"none", "optimizer", "inputs", "inputs:SHARE", "optimizer,inputs",
                                                "optimizer,inputs:SHARE"});
      require<InputError>(share ? found.inputs == 0 : !found.optimizer, "--", flag, " ", shortened(text),
                          " names the same twice; name each once");
      if (share)
        found.inputs = *share;
      else
        found.optimizer = true;
    }
  value = found;
}

std::string to_text(const OffloadFlag& value) {
  if (value == OffloadFlag{}) return std::string(none_name);
  std::string text(value.optimizer ? optimizer_name : "");
  if (value.inputs == 0) return text;
  text += (value.optimizer ? "," : "") + std::string(inputs_name);
  return value.inputs == 1 ? text : text + ":" + to_text(value.inputs);
}

}  // namespace fsdp::train
