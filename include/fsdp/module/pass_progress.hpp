// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a module knows of the passes that were run on it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fsdp {

/// How far the passes of a module have come.
struct PassProgress {
  /// Where the last pass is.
  enum class State : std::uint8_t {
    idle,         ///< no pass is under way
    running,      ///< a pass has begun and is not finished
    left,         ///< a pass was destroyed unfinished, without a reason
    interrupted,  ///< an exception ended it; the next pass begins anew
  };
  State state = State::idle;
  std::size_t at = 0;          ///< of a pass that was left: how many tasks it had run
  bool has_gradients = false;  ///< the gradients at rest are those of a finished training pass
  bool forfeited = false;      ///< this rank gave up that pass
};

}  // namespace fsdp
