// SPDX-License-Identifier: Apache-2.0
/// @file
/// A language model without attention: each block mixes tokens by a mean over the tokens so far. Entry, head and batch
/// are the library's.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/models/model.hpp>
#include <tessera/fsdp/module/stack.hpp>
#include <tessera/fsdp/nn/embedding.hpp>
#include <tessera/fsdp/nn/instances.hpp>
#include <tessera/fsdp/nn/loss_head.hpp>
#include <tessera/fsdp/nn/token_batch.hpp>

#include "causal_mean.hpp"

namespace mixer {

struct Config {
  std::int64_t vocabulary = 32;
  std::int64_t hidden = 32;
  std::int64_t channels = 48;
  std::int64_t layers = 2;

  static Config read(const std::filesystem::path& folder) {
    std::ifstream file(folder / "config.json");
    const auto object = nlohmann::json::parse(file, nullptr, false);
    Config config;
    visit(config, [&](const char* name, std::int64_t& value, const char*) {
      fsdp::require<fsdp::InputError>(object.is_object() && object.contains(name) && object[name].is_number_integer(),
                                      (folder / "config.json").string(), ": \"", name, "\" is not a whole number");
      value = object[name].get<std::int64_t>();
    });
    return config;
  }
  std::string write() const {
    nlohmann::ordered_json object;
    visit(*this, [&](const char* name, std::int64_t value, const char*) { object[name] = value; });
    return object.dump(2) + "\n";
  }
  void validate() const {
    visit(*this, [](const char* name, std::int64_t value, const char*) {
      fsdp::require<fsdp::InputError>(value > 0 && value < 1 << 20, "model: ", name, " is ", value,
                                      "; it must be above 0 and below ", 1 << 20);
    });
  }
  template <class Self, class Visitor>
  static void visit(Self& self, Visitor&& visitor) {
    visitor("vocabulary", self.vocabulary, "tokens that the model knows");
    visitor("hidden", self.hidden, "width of the residual stream");
    visitor("channels", self.channels, "means of a block");
    visitor("layers", self.layers, "blocks");
  }
};

template <class StackT>
class Mixer {
 public:
  using Stack = StackT;
  using Local = typename Stack::Local;
  using Config = mixer::Config;
  using Batch = fsdp::TokenBatch;
  using Entry = nn::Embedding<Local>;
  using Block = CausalMean<Local>;
  using Head = nn::LossHead<Local>;
  template <class Other>
  using On = Mixer<Other>;

  explicit Mixer(const Config& config, fsdp::UnitOptions units = {}) : config_(config), units_(std::move(units)) {
    config.validate();
  }

  const Config& config() const { return config_; }
  const fsdp::UnitOptions& units() const { return units_; }
  std::int64_t hidden() const { return config_.hidden; }

  Entry entry() const { return {{}, config_.vocabulary, config_.hidden}; }
  int blocks() const { return static_cast<int>(config_.layers); }
  Block block(int) const { return {{}, config_.hidden, config_.channels}; }
  Head head() const { return {{}, config_.vocabulary, config_.hidden}; }
  std::string prefix(int index) const { return "blocks." + std::to_string(index) + "."; }

  void validate(const Batch& batch, std::int64_t sequence_length) const {
    fsdp::require<fsdp::InputError>(batch.documents.empty(), "mixer: a mean is of a whole sequence; pack no documents");
    batch.validate(sequence_length, config_.vocabulary);
  }
  Batch unread_batch(std::int64_t sequences, std::int64_t sequence_length) const {
    return Batch::unread(sequences, sequence_length);
  }
  /// 6 FLOPs per token and weight; the FLOPs of the means are not counted.
  double flops(std::int64_t tokens, std::int64_t) const {
    return 6.0 * static_cast<double>(tokens * parameter_count(*this));
  }

 private:
  Config config_;
  fsdp::UnitOptions units_;
};

}  // namespace mixer
