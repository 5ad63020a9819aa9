// SPDX-License-Identifier: Apache-2.0
/// @file
/// LoRA's settings: which of a model's projections have low-rank paths (tessera/fsdp/nn/low_rank.hpp). The settings are
/// read and written as values of a config and as PEFT's adapter_config.json.
#pragma once

#include <array>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/has_member.hpp>
#include <tessera/fsdp/core/hash.hpp>
#include <tessera/fsdp/nn/low_rank.hpp>

namespace fsdp {

/// The LoRA part of a model's config. Rank 0 means no adapters.
struct LoraConfig {
  std::int64_t rank = 0;
  double alpha = 16;          ///< the paths' outputs are multiplied by alpha / rank
  double dropout = 0;         ///< dropout rate, applied to the paths' input in training
  bool rslora = false;        ///< whether the factor is alpha / sqrt(rank) instead (Kalajdzievski 2023)
  std::string targets = "*";  ///< patterns of projections' names, with * and ?, comma-separated
  std::string base = {};      ///< folder or name of the model that the adapters were trained on; informative only

  bool on() const { return rank > 0; }  ///< whether there are adapters
  /// Returns the factor of the paths' outputs.
  double scale() const { return alpha / (rslora ? std::sqrt(static_cast<double>(rank)) : static_cast<double>(rank)); }
  /// Whether a projection has a path: a pattern matches its whole name ("model.layers.0.self_attn.q_proj"), or a suffix
  /// after one of its dots ("q_proj").
  bool targets_projection(const std::string& name) const;
  /// Whether a pattern with * and ? matches a whole name, or a suffix after one of its dots.
  static bool matches(const std::string& pattern, const std::string& name);
  std::vector<std::string> patterns() const;  ///< comma-separated patterns of `targets`

  /// Returns the paths of N projections of one block that read the same input. Their names are `prefix` + names[i].
  template <std::size_t N>
  nn::LowRank<N> paths(const std::string& prefix, const std::array<const char*, N>& names) const {
    if (!on()) return {};
    nn::LowRank<N> paths{.rank = rank,
                         .scale = static_cast<float>(scale()),
                         .dropout = static_cast<float>(dropout),
                         .key = hashed(hashed(hash_seed, prefix), names[0])};
    for (std::size_t i = 0; i < N; ++i) paths.on[i] = targets_projection(prefix + names[i]);
    return paths;
  }

  void validate() const;  ///< throws InputError for the first invalid value

  // JSON is read and written by tessera::model_files: src/fsdp/model_files/lora_json.cpp.
  /// Reads the text of PEFT's adapter_config.json; `source` is its name in messages. Throws InputError, which reports
  /// the key, for an unsupported setting (other kinds of adapters, other ranks by pattern, biases, fully trained
  /// modules).
  static LoraConfig parse(std::string_view json, const std::string& source);
  static LoraConfig read(const std::filesystem::path& folder);  ///< reads `folder`/adapter_config.json, of at most 1 MB
  /// Returns the text of an adapter_config.json that PEFT opens. `modules`: names of the projections with paths;
  /// `others`: names of all other modules with a weight.
  std::string write(const std::vector<std::string>& modules, const std::vector<std::string>& others) const;

  template <class Self, class Visitor>
  static void visit(Self& self, Visitor&& visitor) {
    visitor("lora_rank", self.rank, "LoRA: train paths of this rank beside frozen projections; 0: train all weights");
    visitor("lora_alpha", self.alpha, "LoRA: paths count alpha / rank times");
    visitor("lora_dropout", self.dropout, "LoRA: share of a path's input that is left out in training");
    visitor("lora_rslora", self.rslora, "LoRA: paths count alpha / sqrt(rank) times");
    visitor("lora_targets", self.targets, "LoRA: projections that have paths, with * and ?, between commas");
  }
  /// Whether this value may be set for an existing model: it adds weights and changes no existing ones.
  static bool may_be_added(std::string_view name) { return name.starts_with("lora_"); }
};

/// A config whose model can have adapters.
template <class Config>
concept HasAdapters = requires(Config changed, const Config config) {
  { changed.adapters() } -> std::same_as<LoraConfig&>;
  { config.adapters() } -> std::same_as<const LoraConfig&>;
};

/// Reads the adapters in folder `adapter` for the model in `folder`. `present`, the model's own adapters, must be
/// empty. Throws InputError.
LoraConfig read_adapters(const LoraConfig& present, const std::filesystem::path& folder,
                         const std::filesystem::path& adapter);

namespace detail {
FSDP_HAS_MEMBER(unmatched_target)
}  // namespace detail

/// Throws InputError, which reports the adapters' config, unless `unmatched_target` is empty.
void require_matched(const std::string& unmatched_target, const std::filesystem::path& adapter);

/// Reads the config of `folder`, and the adapters in folder `adapter` unless it is empty. Throws InputError.
template <class Config>
Config read_config(const std::filesystem::path& folder, const std::filesystem::path& adapter) {
  Config config = Config::read(folder);
  if (adapter.empty()) return config;
  if constexpr (HasAdapters<Config>) {
    config.adapters() = read_adapters(config.adapters(), folder, adapter);
    if constexpr (detail::has_unmatched_target<Config>()) require_matched(config.unmatched_target(), adapter);
    config.validate();
    return config;
  } else {
    throw InputError(message("--adapter ", adapter.string(), ": this model's projections have no adapters"));
  }
}

}  // namespace fsdp
