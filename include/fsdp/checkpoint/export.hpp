// SPDX-License-Identifier: Apache-2.0
/// @file
/// From a checkpoint to a folder that other programs open: weights of one type, in shards where they are many.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

#include <fsdp/checkpoint/model_files.hpp>
#include <fsdp/core/dtype.hpp>

namespace fsdp::checkpoint {

/// What is exported, and how.
struct ExportOptions {
  std::filesystem::path from =
      {};  ///< a step's folder, a directory of them (the newest sound one), or any model's folder
  std::filesystem::path to = {};             ///< must not be there
  DType dtype = DType::f32;                  ///< f32, bf16 or f16
  std::int64_t shard_bytes = 5'000'000'000;  ///< of tensors in one file; a larger tensor has a file of its own
  std::filesystem::path files_from = {};     ///< of the tokenizer's files: before `from`; may be empty
  std::filesystem::path adapter = {};        ///< PEFT's folder of adapters for `from`; may be empty
  bool merge = false;                        ///< adapters are added to the weights beside which they are
};

/// What was written.
struct Exported {
  std::filesystem::path from = {};  ///< the folder that was read
  std::int64_t bytes = 0;           ///< of all tensors
  std::size_t files = 0;            ///< of weights
  std::vector<std::string> copied = {};
};

/// Called after each piece with the bytes of weights that are written and that there are; may throw to end the export.
using ExportProgress = std::function<void(std::int64_t done, std::int64_t all)>;

/// Writes config.json, safetensors as huggingface_hub names and cuts them, and copies of the tokenizer's files and
/// generation_config.json where there are any. Of a model with adapters that are not merged: they alone, as PEFT has
/// them. A piece of a tensor is in memory at a time. `to` appears when all of it
/// is on disk; nothing stays of an export that ends early. Throws InputError, for a weight that is finite and too large
/// for float16 as well.
Exported export_model(const ExportOptions& options, const ReadListing& read, const Warn& warn,
                      const ExportProgress& progress);

}  // namespace fsdp::checkpoint
