// SPDX-License-Identifier: Apache-2.0
/// @file
/// A folder with config.json and model.safetensors: the weights of a Llama, as anyone may have written them.
///
/// Not here: the optimizer and the trainer's position (checkpoint/folder.hpp).
#pragma once

#include <filesystem>
#include <functional>
#include <span>
#include <string>

#include <fsdp/checkpoint/safetensors.hpp>
#include <fsdp/models/llama_config.hpp>

namespace fsdp::checkpoint {

/// Called with one sentence that the user should see and that stops nothing.
using Warn = std::function<void(const std::string&)>;

struct ModelFiles {
  LlamaConfig config;
  SafetensorsFile weights;
};

/// Opens the folder and checks every name and shape against its config. Throws InputError.
/// Where the head is tied, a stored lm_head.weight is ignored with a warning; rotary inv_freq tensors are ignored.
ModelFiles open_model(const std::filesystem::path& folder, const Warn& warn = {});

/// Throws InputError unless the file has exactly the expected tensors: unknown and missing names (up to 10 of each),
/// then the first tensor whose shape differs, with both shapes.
void check_tensors(const SafetensorsFile& file, std::span<const NamedShape> expected,
                   const std::function<bool(const std::string&)>& ignored = {});

}  // namespace fsdp::checkpoint
