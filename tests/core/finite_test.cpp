// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/core/checked.hpp>

#include <limits>

namespace fsdp {
namespace {

using Limits = std::numeric_limits<double>;

static_assert(is_finite(0) && is_finite(-1.5) && is_finite(Limits::max()) && is_finite(Limits::denorm_min()));
static_assert(!is_finite(Limits::quiet_NaN()) && !is_finite(Limits::infinity()) && !is_finite(-Limits::infinity()));

}  // namespace
}  // namespace fsdp
