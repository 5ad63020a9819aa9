// SPDX-License-Identifier: Apache-2.0
/// @file
/// What tests set of the double of cuDNN.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fsdp::testing::cuda_host {

struct CudnnDouble {
  /// What the library says that it is. The headers may be older: cudnn-frontend then builds for them.
  static inline std::size_t version = 91900;
  /// Workspace that a plan asks for beyond what cuDNN 9.19 does.
  static inline std::int64_t more_workspace = 0;
  /// No engine takes a graph.
  static inline bool takes_nothing = false;

  static void reset() { version = 91900, more_workspace = 0, takes_nothing = false; }
};

}  // namespace fsdp::testing::cuda_host
