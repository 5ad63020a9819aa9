// SPDX-License-Identifier: Apache-2.0
/// @file
/// Checkpoints of a small Llama, written without training.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include <tessera/comm/self.hpp>
#include <tessera/fsdp/checkpoint/folder.hpp>

#include "support/listed_llama.hpp"
#include "support/temporary_folder.hpp"

namespace fsdp::test {

using checkpoint::elements_of;
using checkpoint::NamedShape;
using checkpoint::OptimizerStates;
using checkpoint::ReadModelListing;
using checkpoint::Save;
using checkpoint::TrainerState;

inline const LlamaConfig small_model = {
    .vocab_size = 11, .hidden_size = 6, .intermediate_size = 5, .layers = 2, .heads = 3, .kv_heads = 1, .head_dim = 2};
inline const ReadModelListing read_small = checkpoint::read_listing<ListedLlama>;
inline const TrainerState some_state = {.step = 7,
                                        .tokens = 1234,
                                        .epoch = 2,
                                        .index = 5,
                                        .seed = 0xffffffffffffffffu,
                                        .windows = 6,
                                        .seq_len = 16,
                                        .schedule_steps = 100,
                                        .loss_scale = DynamicLossScale::State{.scale = 1024, .sound_steps = 3},
                                        .best = checkpoint::BestLoss{.loss = 0.1, .step = 5, .worse = 1},
                                        .run = {{"lr", "0.001"}, {"data", "1 files"}}};

inline const std::vector<std::string> adamw_states = {"exp_avg", "exp_avg_sq"};

inline OptimizerStates states_for(const LlamaConfig& config, const std::string& optimizer = "adamw",
                                  const std::vector<std::string>& names = adamw_states) {
  OptimizerStates states{.optimizer = optimizer};
  for (const NamedShape& parameter : test::listing_of(config).parameters)
    for (const std::string& name : names) states.of[parameter.name].push_back({name});
  return states;
}

/// A value that is different for every element of a weight (part 0) and of its optimizer states (other parts).
inline float value_at(std::size_t part, std::size_t parameter, std::int64_t i) {
  return static_cast<float>(i) + 0.001f * static_cast<float>(parameter) + 1000.0f * static_cast<float>(part);
}

/// Writes the share of one of `ranks` ranks: consecutive ranges of every parameter, some of them empty.
inline void write_share(Save& checkpoint, std::int64_t rank, std::int64_t ranks) {
  for (std::size_t p = 0; p < checkpoint.parameters().size(); ++p) {
    const std::int64_t elements = elements_of(checkpoint.parameters()[p].shape);
    const std::int64_t length = (elements + ranks - 1) / ranks;
    const std::int64_t begin = std::min(rank * length, elements), end = std::min(begin + length, elements);
    for (std::size_t part = 0; part < 3; ++part) {
      std::vector<float> values;
      for (std::int64_t i = begin; i < end; ++i) values.push_back(value_at(part, p, i));
      if (part == 0)
        checkpoint.write_weight(p, begin, values);
      else
        checkpoint.write_state(p, part - 1, 4 * begin, std::as_bytes(std::span(values)));
    }
  }
}

inline void save_alone(const std::filesystem::path& dir, std::int64_t step, const LlamaConfig& config = small_model) {
  TrainerState state = some_state;
  state.step = step;
  Save checkpoint(dir, step, 1, test::listing_of(config), states_for(config));
  comm::Self<> ranks;
  save(checkpoint, ranks, state, [](Save& s) { write_share(s, 0, 1); });
}

/// A folder with a checkpoint of step 7.
struct SavedFolder : TemporaryFolder {
  SavedFolder() { save_alone(path(), 7); }
  std::filesystem::path step() const { return path() / "step-00000007"; }
};

inline std::vector<std::string> names_in(const std::filesystem::path& dir) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(dir)) names.push_back(entry.path().filename().string());
  std::ranges::sort(names);
  return names;
}

}  // namespace fsdp::test
