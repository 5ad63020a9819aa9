// SPDX-License-Identifier: Apache-2.0
/// @file
/// A model's weights with its adapters added to them: W + s B A.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <fsdp/checkpoint/model_files.hpp>

namespace fsdp::checkpoint {

/// Reads as ModelFiles does. Sums are made in float, row by row.
class MergedWeights {
 public:
  /// `model` must outlive it.
  explicit MergedWeights(const ModelFiles& model) : model_(&model) {}

  /// Elements [begin, begin + count) of a parameter that is no adapter.
  void read_range(const NamedShape& tensor, std::int64_t begin, std::int64_t count, float* out);

 private:
  void open(const NamedShape& tensor);

  const ModelFiles* model_;
  std::string name_;          // of the tensor whose adapters these are
  std::int64_t rank_ = 0;     // 0: it has none
  std::vector<float> a_, b_;  // [r, in], [out, r]
};

}  // namespace fsdp::checkpoint
