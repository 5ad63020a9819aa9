// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/models/family.hpp>

#include <algorithm>
#include <array>

namespace fsdp {
namespace {

using Window = Family::Window;

/// All families; the others are defined by their differences from the Llama.
constexpr std::array families = {
    Family{.name = "llama",  // Touvron et al. 2023; Llama 2 and 3
           .architecture = "Llama",
           .positions = 2048,
           .has_attention_bias = true,
           .has_mlp_bias = true},
    Family{.name = "mistral",  // Jiang et al. 2023: sliding-window attention
           .architecture = "Mistral",
           .window = Window::always,
           .positions = 131072,
           .kv_heads = 8,
           .kv_heads_may_be_null = false},
    Family{.name = "qwen2",  // Yang et al. 2024: biases of q, k and v
           .architecture = "Qwen2",
           .biases = true,
           .window = Window::by_flag,
           .positions = 32768,
           .kv_heads = 32},
    Family{.name = "qwen3",  // Yang et al. 2025: norms of the heads of q and k; any head width
           .architecture = "Qwen3",
           .head_norms = true,
           .window = Window::by_flag,
           .positions = 32768,
           .kv_heads = 32,
           .head_dim = 128,
           .has_attention_bias = true},
};

}  // namespace

std::vector<std::string> family_names() {
  std::vector<std::string> names;
  for (const Family& family : families) names.emplace_back(family.name);
  return names;
}

std::string families_text(std::string_view conjunction, bool (*matches)(const Family&)) {
  std::string text, last;
  for (const Family& family : families) {
    if (matches != nullptr && !matches(family)) continue;
    if (!last.empty()) text += (text.empty() ? "" : ", ") + last;
    last = family.name;
  }
  return text.empty() ? last : text + " " + std::string(conjunction) + " " + last;
}

const Family* find_family(std::string_view name) {
  const auto found = std::ranges::find(families, name, &Family::name);
  return found == families.end() ? nullptr : &*found;
}

}  // namespace fsdp
