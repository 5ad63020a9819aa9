// SPDX-License-Identifier: Apache-2.0
/// @file
/// A forecaster: reads several time series and predicts the next value of each. Its blocks are the library's.
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
#include <tessera/fsdp/module/units.hpp>
#include <tessera/fsdp/nn/instances.hpp>
#include <tessera/fsdp/nn/recomputed.hpp>
#include <tessera/fsdp/nn/transformer_block.hpp>

#include "batch.hpp"
#include "modules.hpp"

namespace forecaster {

/// The sizes of a forecaster. tessera/fsdp/models/model.hpp lists the required members of a config.
struct Config {
  std::int64_t series = 4;
  std::int64_t hidden = 32;
  std::int64_t intermediate = 64;
  std::int64_t layers = 2;
  std::int64_t heads = 4;

  static Config read(const std::filesystem::path& folder) {
    std::ifstream file(folder / "config.json");
    const auto object = nlohmann::json::parse(file, nullptr, false);
    Config config;
    visit(config, [&](const char* name, std::int64_t& value, const char*) {
      fsdp::require<fsdp::InputError>(object.is_object() && object.contains(name) && object[name].is_number_integer(),
                                      (folder / "config.json").string(), ": \"", name, "\" is not a whole number");
      value = object[name].get<std::int64_t>();
    });
    config.validate();
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
    fsdp::require<fsdp::InputError>(hidden % (2 * heads) == 0, "model: hidden ", hidden, " is not a multiple of 2 x ",
                                    heads, " heads");
  }
  template <class Self, class Visitor>
  static void visit(Self& self, Visitor&& visitor) {
    visitor("series", self.series, "series that are seen and forecast together");
    visitor("hidden", self.hidden, "width of the residual stream");
    visitor("intermediate", self.intermediate, "width inside the MLP");
    visitor("layers", self.layers, "transformer blocks");
    visitor("heads", self.heads, "attention heads");
  }
};

/// The linear entry, with the rotary table that the blocks' attention needs.
template <class L>
struct Entry : LinearEntry<L> {
  std::int64_t head_dim = 0;

  using Shared = nn::RotaryTable;
  Shared share(nn::Context<L>& context) const {
    const auto table = context.template save<float>({context.sequence_length, head_dim});  // [S, d]
    device::enqueue(context.stream, device::RotaryTable{.theta = 10000.0f, .table = table});
    return {table};
  }
};

template <class StackT>
class Forecaster {
 public:
  using Stack = StackT;
  using Local = typename Stack::Local;
  using Config = forecaster::Config;
  using Batch = forecaster::Batch;
  using Entry = forecaster::Entry<Local>;
  using Block = nn::Recomputed<nn::TransformerBlock<Local>, Local>;
  using Head = SquaredErrorHead<Local>;
  template <class Other>
  using On = Forecaster<Other>;

  explicit Forecaster(const Config& config, fsdp::UnitOptions units = {}) : config_(config), units_(std::move(units)) {
    config.validate();
  }

  const Config& config() const { return config_; }
  const fsdp::UnitOptions& units() const { return units_; }
  std::int64_t hidden() const { return config_.hidden; }

  Entry entry() const { return {{{}, config_.series, config_.hidden}, head_dim()}; }
  int blocks() const { return static_cast<int>(config_.layers); }
  Block block(int) const {
    const std::int64_t alive = units_.recompute ? 1 : config_.layers;  // number of blocks with live activations
    return {{{},
             {{}, config_.hidden, config_.heads, config_.heads, head_dim(), 1e-5f},
             {{}, config_.hidden, config_.intermediate, 1e-5f, alive}},
            units_.recompute};
  }
  Head head() const { return {{}, config_.hidden, config_.series}; }
  std::string prefix(int index) const { return "blocks." + std::to_string(index) + "."; }

  void validate(const Batch& batch, std::int64_t sequence_length) const {
    batch.validate(sequence_length, config_.series, config_.series);
  }
  Batch unread_batch(std::int64_t sequences, std::int64_t sequence_length) const {
    return Batch::unread(sequences, sequence_length, config_.series, config_.series);
  }
  /// 6 FLOPs per row and weight, plus the FLOPs of causal attention, as in fsdp::Llama.
  double flops(std::int64_t tokens, std::int64_t squares) const {
    return 6.0 * static_cast<double>(tokens * parameter_count(*this)) +
           6.0 * static_cast<double>(config_.layers * config_.hidden * squares);
  }

 private:
  std::int64_t head_dim() const { return config_.hidden / config_.heads; }

  Config config_;
  fsdp::UnitOptions units_;
};

}  // namespace forecaster
