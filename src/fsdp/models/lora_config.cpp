// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/models/lora_config.hpp>

#include <fnmatch.h>

#include <algorithm>

#include "../core/strings.hpp"

namespace fsdp {

std::vector<std::string> LoraConfig::patterns() const {
  const std::vector<std::string_view> parts = split_at(targets, ',');
  return {parts.begin(), parts.end()};
}

bool LoraConfig::matches(const std::string& pattern, const std::string& name) {
  if (::fnmatch(pattern.c_str(), name.c_str(), 0) == 0) return true;
  for (std::size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1))
    if (::fnmatch(pattern.c_str(), name.c_str() + dot + 1, 0) == 0) return true;
  return false;
}

bool LoraConfig::targets_projection(const std::string& name) const {
  return std::ranges::any_of(patterns(), [&](const std::string& pattern) { return matches(pattern, name); });
}

void require_matched(const std::string& unmatched_target, const std::filesystem::path& adapter) {
  require<InputError>(unmatched_target.empty(), (adapter / "adapter_config.json").string(),
                      ": \"target_modules\" has \"", unmatched_target,
                      "\", which matches no projection of the model that can have adapters; take it ",
                      "out if the file of weights has nothing of it");
}

void LoraConfig::validate() const {
  require<InputError>(rank >= 0 && rank <= 4096, "model: lora_rank is ", rank, "; it must be 0 to 4096");
  require<InputError>(std::isfinite(alpha) && alpha > 0 && alpha <= 1e6, "model: lora_alpha is ", alpha,
                      "; it must be above 0 and at most 1e6");
  require<InputError>(dropout >= 0 && dropout < 1, "model: lora_dropout is ", dropout,
                      "; it must be at least 0 and below 1");
  if (!on()) return;
  for (const std::string& pattern : patterns())
    require<InputError>(!pattern.empty(), "model: lora_targets is '", targets,
                        "', which has an empty pattern; write names between single commas");
}

}  // namespace fsdp
