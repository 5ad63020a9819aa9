// SPDX-License-Identifier: Apache-2.0
/// @file
/// A stream's cached state of each library. Only the source that uses the library defines the types.
#pragma once

#include <memory>

#include <tessera/fsdp/device/cuda.hpp>

#include "attention_cudnn.hpp"

namespace fsdp::device {

namespace cuda {
struct MatmulPlans;      // matmul.cpp
struct AttentionGraphs;  // attention_cudnn.cpp
}  // namespace cuda

struct Cuda::Stream::Cache {
  std::shared_ptr<cuda::MatmulPlans> matmuls;
  std::shared_ptr<cuda::AttentionGraphs> attention;  ///< made on first use
  cuda::AttentionBy attention_by = cuda::AttentionBy::either;
};

}  // namespace fsdp::device
