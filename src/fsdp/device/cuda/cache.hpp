// SPDX-License-Identifier: Apache-2.0
/// @file
/// A stream's cached state for each library. Each type is defined only in the source file that uses the library.
#pragma once

#include <memory>

#include <tessera/fsdp/device/cuda.hpp>

#include "attention_cudnn.hpp"

namespace fsdp::device {

namespace cuda {
struct MatmulPlans;      // defined in matmul.cpp
struct AttentionGraphs;  // defined in attention_cudnn.cpp
}  // namespace cuda

struct Cuda::Stream::Cache {
  std::shared_ptr<cuda::MatmulPlans> matmuls;
  std::shared_ptr<cuda::AttentionGraphs> attention;  ///< created on first use
  cuda::AttentionBy attention_by = cuda::AttentionBy::either;
};

}  // namespace fsdp::device
