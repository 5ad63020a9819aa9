// SPDX-License-Identifier: Apache-2.0
/// @file
/// Exports a checkpoint to a folder that other programs can open: weights of one type, in several files if they are
/// large.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <tessera/fsdp/core/dtype.hpp>
#include <tessera/fsdp/model_files/model_files.hpp>

namespace fsdp::checkpoint {

/// What to export, and how.
struct ExportOptions {
  std::filesystem::path from =
      {};  ///< a step's folder, a directory of them (the newest sound one), or any model's folder
  std::filesystem::path to = {};             ///< must not exist yet
  DType dtype = DType::f32;                  ///< f32, bf16 or f16
  std::int64_t shard_bytes = 5'000'000'000;  ///< tensor bytes per file, at most; a larger tensor gets its own file
  std::filesystem::path files_from = {};     ///< tokenizer's files are taken from here first, then `from`; may be empty
  std::filesystem::path adapter = {};        ///< folder of adapters in PEFT's format, for `from`; may be empty
  bool merge = false;                        ///< add the adapters to the weights that they belong to
};

/// What merging adapters did to the weights that have adapters, after rounding to the export's type.
struct MergeEffect {
  std::int64_t weights = 0, changed = 0;  ///< weights that have adapters; those that differ from the rounded base
  double wanted = 0, lost = 0;  ///< sums of squares: of the adapters' product, and of what the change lacks of it

  /// The norm of what is lost, relative to that of the adapters' product; at most 1, and 0 if the product is zero.
  double lost_share() const;
};

/// The result of an export.
struct Exported {
  std::filesystem::path from = {};        ///< the folder that was read
  std::int64_t bytes = 0;                 ///< of all tensors
  std::size_t files = 0;                  ///< number of weight files
  std::vector<std::string> copied = {};   ///< names of the other files that were copied
  std::optional<MergeEffect> merge = {};  ///< if adapters were merged
};

/// Called after each piece with the bytes of weights written so far and their total. May throw to cancel the export.
using ExportProgress = std::function<void(std::int64_t done, std::int64_t all)>;

/// Writes config.json, safetensors files named and split as by huggingface_hub, and copies of the tokenizer's files and
/// generation_config.json if there are any. For a model with adapters that are not merged, writes the adapters in
/// PEFT's format instead of config.json and weights. Holds one piece of a tensor in memory at a time. The folder `to`
/// appears when all of it is on disk; a failed export leaves nothing behind. Throws InputError, also for a weight
/// that is not finite, before or after a merge, or too large for float16.
Exported export_model(const ExportOptions& options, const ReadModelListing& read, const Warn& warn,
                      const ExportProgress& progress);

}  // namespace fsdp::checkpoint
