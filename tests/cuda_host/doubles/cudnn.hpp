// SPDX-License-Identifier: Apache-2.0
/// @file
/// Controls of the fake cuDNN for tests.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fsdp::testing::cuda_host {

struct CudnnDouble {
  /// The reported version of the library. The headers may be older; cudnn-frontend then builds for these.
  static inline std::size_t version = 91900;
  /// Workspace bytes that a plan requests in addition to those of cuDNN 9.19.
  static inline std::int64_t more_workspace = 0;
  /// Whether no engine supports any graph.
  static inline bool takes_nothing = false;

  static void reset() { version = 91900, more_workspace = 0, takes_nothing = false; }
};

}  // namespace fsdp::testing::cuda_host
