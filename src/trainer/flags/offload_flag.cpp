// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/flags/offload_flag.hpp>

#include <vector>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/terminal_text.hpp>

#include "../../fsdp/core/numbers.hpp"
#include "../../fsdp/core/value_names.hpp"

namespace fsdp::train {

std::optional<double> input_share(std::string_view flag, std::string_view text) {
  constexpr std::string_view name = "inputs";
  if (text == name) return 1;
  if (!text.starts_with(name) || text[name.size()] != ':') return std::nullopt;
  std::string_view number = text.substr(name.size() + 1);
  const bool percents = number.ends_with('%');
  if (percents) number.remove_suffix(1);
  const double share = parsed<double>(number).value_or(0) / (percents ? 100 : 1);
  require<InputError>(share > 0 && share <= 1, "--", flag, " ", shortened(text),
                      ": the share of blocks must be above 0 and at most 1, or 100%; give one such as inputs:0.25");
  return share;
}

std::string input_share_text(double share) { return share == 1 ? "inputs" : "inputs:" + to_text(share); }

void bind_input_share(FlagSet& flags, double& share, const std::string& sharding) {
  flags.add(
      {.name = "offload",
       .help =
           "none | inputs | inputs:SHARE (inputs of recomputed blocks, of all or a share of them as 0.25 or 25%, are "
           "in host memory until their backward)",
       .effect = Effect::chosen,
       .set =
           [&share, sharding](const std::vector<std::string>& texts) {
             const std::string& text = FlagSet::single("offload", texts);
             require<InputError>(text != "optimizer", "--offload optimizer is fixed by this program: ", sharding);
             const std::optional<double> found = input_share("offload", text);
             if (!found && text != "none")
               refuse_unknown("offload", text, std::vector<std::string>{"none", "inputs", "inputs:SHARE"});
             share = found.value_or(0);
           },
       .get = [&share] { return std::vector<std::string>{share == 0 ? "none" : input_share_text(share)}; }});
}

}  // namespace fsdp::train
