// SPDX-License-Identifier: Apache-2.0
/// @file
/// Reads a model's weights with its adapters merged into them: W + s B A.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <fsdp/checkpoint/model_files.hpp>

namespace fsdp::checkpoint {

/// Merges adapters while reading, in float.
class MergedWeights {
 public:
  /// `model` must outlive it.
  explicit MergedWeights(const ModelFiles& model) : model_(&model) {}

  /// Reads elements [begin, begin + count) of a parameter that is not an adapter.
  void read_range(const NamedShape& tensor, std::int64_t begin, std::int64_t count, float* out);

  /// Returns what makes an element infinite or NaN: the weight, a value of A or B, or else their sum. `base` and
  /// `adapter` name the folders.
  std::string cause(const NamedShape& tensor, std::int64_t at, const std::string& base, const std::string& adapter);

 private:
  void open(const NamedShape& tensor);

  const ModelFiles* model_;
  std::string name_;          // the tensor that a_ and b_ belong to
  std::int64_t rank_ = 0;     // 0: the tensor has no adapter
  std::vector<float> a_, b_;  // [r, in], [out, r]
};

}  // namespace fsdp::checkpoint
