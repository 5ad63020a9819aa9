// SPDX-License-Identifier: Apache-2.0
/// @file
/// Reads a model's weights with its adapters merged into them: W + s B A.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tessera/fsdp/model_files/model_files.hpp>

namespace fsdp::checkpoint {

/// Merges adapters while reading, in float. Throws InputError for a value that is not finite.
class MergedWeights {
 public:
  /// `model` must outlive it. `adapter`: their folder, for messages.
  MergedWeights(const ModelFiles& model, std::string adapter) : model_(&model), adapter_(std::move(adapter)) {}

  /// Reads elements [begin, begin + count) of a parameter that is not an adapter.
  void read_finite(const NamedShape& tensor, std::int64_t begin, std::int64_t count, float* out);

 private:
  void open(const NamedShape& tensor);

  const ModelFiles* model_;
  std::string adapter_;
  std::string name_;          // the tensor that a_ and b_ belong to
  std::int64_t rank_ = 0;     // 0: the tensor has no adapter
  std::vector<float> a_, b_;  // [r, in], [out, r]
};

}  // namespace fsdp::checkpoint
