// SPDX-License-Identifier: Apache-2.0
/// @file
/// Reads a model's weights with its adapters merged into them: W + s B A.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tessera/fsdp/core/dtype.hpp>
#include <tessera/fsdp/model_files/export.hpp>
#include <tessera/fsdp/model_files/model_files.hpp>

namespace fsdp::checkpoint {

/// Merges adapters while reading, computing in float. Throws InputError for a value that is not finite.
class MergedWeights {
 public:
  /// `model` must outlive this object. `adapter`: the folder of the adapters, for messages. `dtype`: the type that the
  /// weights will be rounded to.
  MergedWeights(const ModelFiles& model, std::string adapter, DType dtype)
      : model_(&model), adapter_(std::move(adapter)), dtype_(dtype) {}

  /// Reads elements [begin, begin + count) of a parameter that is not an adapter.
  void read_finite(const NamedShape& tensor, std::int64_t begin, std::int64_t count, float* out);

  const MergeEffect& effect() const { return effect_; }  ///< on all values that were read so far

 private:
  void open(const NamedShape& tensor);
  void measure(const float* base, const float* product, const float* merged, std::int64_t values);

  const ModelFiles* model_;
  std::string adapter_;
  std::string name_;          // name of the tensor that a_ and b_ belong to
  std::int64_t rank_ = 0;     // rank of the adapter; 0 if the tensor has no adapter
  std::vector<float> a_, b_;  // [r, in], [out, r]
  DType dtype_;
  MergeEffect effect_;
  std::vector<float> base_, product_;  // values of one row
};

}  // namespace fsdp::checkpoint
