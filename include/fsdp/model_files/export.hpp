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

/// The input, output and format of an export.
struct ExportOptions {
  std::filesystem::path from =
      {};  ///< folder of a step, directory of steps (the newest valid one is exported), or any model's folder
  std::filesystem::path to = {};             ///< folder to create; must not exist yet
  DType dtype = DType::f32;                  ///< type of the exported weights: f32, bf16 or f16
  std::int64_t shard_bytes = 5'000'000'000;  ///< most tensor bytes per file; a larger tensor gets its own file
  /// Folder whose tokenizer files take precedence over those in `from`; may be empty.
  std::filesystem::path files_from = {};
  std::filesystem::path adapter = {};  ///< folder of adapters in PEFT's format for the model in `from`; may be empty
  bool merge = false;                  ///< add the adapters to the weights that they adapt
};

/// The effect of a merge on the weights that have adapters, after rounding to the export's type.
struct MergeEffect {
  /// Number of values in weights with adapters, and of values that differ from the rounded base.
  std::int64_t weights = 0, changed = 0;
  /// Sums of squares: of the adapters' product, and of the difference between the product and the actual change.
  double wanted = 0, lost = 0;

  /// Returns the norm of the lost part relative to the norm of the adapters' product; at most 1, and 0 if the product
  /// is zero.
  double lost_share() const;
};

/// The result of an export.
struct Exported {
  std::filesystem::path from = {};        ///< the folder that was read
  std::int64_t bytes = 0;                 ///< bytes of all exported tensors
  std::size_t files = 0;                  ///< number of weight files
  std::vector<std::string> copied = {};   ///< names of the other files that were copied
  std::optional<MergeEffect> merge = {};  ///< effect of the merge, if adapters were merged
};

/// Called after each piece with the number of bytes of weights written so far and the total. May throw to cancel the
/// export.
using ExportProgress = std::function<void(std::int64_t done, std::int64_t all)>;

/// Writes config.json, safetensors files with names and sizes as huggingface_hub chooses them, and copies of the
/// tokenizer's files and generation_config.json if they exist. For a model with adapters that are not merged, writes
/// the adapters in PEFT's format instead of config.json and weights. Has one piece of a tensor in memory at a time. The
/// folder `to` appears when all files are on disk; a failed export leaves no files behind. Throws InputError, also for
/// a weight that is too large for float16 or not finite, before or after a merge.
Exported export_model(const ExportOptions& options, const ReadModelListing& read, const Warn& warn,
                      const ExportProgress& progress);

}  // namespace fsdp::checkpoint
