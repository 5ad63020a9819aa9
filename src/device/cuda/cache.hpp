// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a stream keeps of each library between calls. The types are known only to the source that uses the library.
#pragma once

#include <memory>

#include <fsdp/device/cuda.hpp>

#include "attention_cudnn.hpp"

namespace fsdp::device {

namespace cuda {
struct MatmulPlans;      // matmul.cpp
struct AttentionGraphs;  // attention_cudnn.cpp
}  // namespace cuda

struct Cuda::Stream::Cache {
  std::shared_ptr<cuda::MatmulPlans> matmuls;
  std::shared_ptr<cuda::AttentionGraphs> attention;  ///< made when first asked for
  cuda::AttentionBy attention_by = cuda::AttentionBy::either;
};

}  // namespace fsdp::device
