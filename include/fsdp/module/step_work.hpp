// SPDX-License-Identifier: Apache-2.0
/// @file
/// The cost of an optimizer's step, which layouts of whole tensors balance over ranks.
#pragma once

#include <cstdint>

#include <tessera/fsdp/core/parameter.hpp>

namespace fsdp {

/// The cost of an optimizer's step on a whole parameter, in any unit.
using StepWork = std::int64_t (*)(const Parameter&);

/// The cost for an optimizer that steps each element alone: the number of elements.
inline std::int64_t elementwise_work(const Parameter& parameter) { return parameter.shape.numel(); }

}  // namespace fsdp
