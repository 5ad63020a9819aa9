// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/precision/policies.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/precision/by_tensor.hpp>

namespace fsdp {

void throw_weight_type(DType own, DType requested, std::string_view name) {
  throw LogicError(message("use: ", name.empty() ? "a weight" : message("the weight '", name, "'"), " is ",
                           name_of(own), " (UnitOptions::precision), and ", name_of(requested),
                           " was requested; take weight<", own == DType::f32 ? "float" : "Compute", ">, or with_view"));
}

bool FloatWeights::contains(std::string_view unit, const Parameter& parameter) const {
  const std::size_t index = index_of(patterns, unit, parameter, "precision: ");
  return index < std::min(patterns.size(), is_float.size()) && is_float[index];
}

DynamicLossScale::DynamicLossScale(const State& state) : state_(state) {
  int exponent = 0;
  require<InputError>(std::frexp(state.scale, &exponent) == 0.5 && state.scale >= smallest && state.scale <= largest,
                      "loss scale: ", state.scale, " is not a power of two between 2^-24 and 2^100");
}

void DynamicLossScale::update(bool finite, double with) {
  if (!finite && with > state_.scale) return;
  if (!finite) {
    require<DivergedError>(state_.scale > smallest,
                           "loss scale: gradients are not finite at the smallest scale, 2^-24; "
                           "lower the learning rate, or look at the data of this step");
    state_ = {.scale = state_.scale * backoff, .sound_steps = 0};
  } else if (++state_.sound_steps == interval) {
    state_ = {.scale = std::fmin(state_.scale * growth, largest), .sound_steps = 0};
  }
}

}  // namespace fsdp
