// SPDX-License-Identifier: Apache-2.0
/// @file
/// Saves a test's training to a checkpoint, and resumes from it.
#pragma once

#include <cstdint>
#include <filesystem>

#include <tessera/fsdp/checkpoint/folder.hpp>
#include <tessera/fsdp/checkpoint/shards_io.hpp>
#include <tessera/fsdp/model_files/model_files.hpp>

namespace fsdp::testing {

/// Saves weights and optimizer state of a train::Training, bit-exactly. Collective.
template <class Training>
void save_training(Training& training, const std::filesystem::path& folder) {
  auto& module = training.module();
  const std::int64_t step = training.optimizer().steps();
  checkpoint::Save save(folder, step, 1, checkpoint::listing_of(module.model()),
                        train::states_of(module, training.optimizer().optimizer()));
  checkpoint::save(save, module.communicator(), {.step = step, .windows = 1, .seq_len = 1, .schedule_steps = step},
                   [&](checkpoint::Save& file) { train::write_shards(module, training.optimizer(), file); });
}

template <class Training>
void restore_training(Training& training, const std::filesystem::path& folder) {
  train::restore(training.module(), training.optimizer(),
                 checkpoint::Checkpoint::open(folder, checkpoint::read_listing<typename Training::Model>));
}

}  // namespace fsdp::testing
