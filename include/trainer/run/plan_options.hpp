// SPDX-License-Identifier: Apache-2.0
/// @file
/// The options of `tessera plan` besides those of `train`.
#pragma once

#include <string>

namespace fsdp::train {

/// What `tessera plan` takes besides the options of `train`.
struct PlanOptions {
  bool json = false;  ///< one object instead of a table

  friend bool operator==(const PlanOptions&, const PlanOptions&) = default;
};

}  // namespace fsdp::train
