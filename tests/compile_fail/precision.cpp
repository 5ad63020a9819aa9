// SPDX-License-Identifier: Apache-2.0
// expect 1: fsdp: a precision policy lacks the type Accumulate (gradients being summed), so backward has nowhere
// expect 2: fsdp: a precision policy lacks the type Compute (weights and activations in use)
#include <tessera/fsdp/precision/policies.hpp>

namespace fsdp {

struct WithoutGradients {
  using Compute = bf16;
  using Main = float;
  using Reduce = float;
  static constexpr std::string_view name = "no gradients";
};

struct WithoutCompute {
  using Main = float;
  using Accumulate = float;
  using Reduce = float;
  static constexpr std::string_view name = "no compute";
};

struct WithoutName {
  using Compute = bf16;
  using Main = float;
  using Accumulate = float;
  using Reduce = float;
};

#if CASE == 0
static_assert(check_precision<Fp32>() && check_precision<Bf16Mixed>() && check_precision<WithoutName>());
#elif CASE == 1
static_assert(check_precision<WithoutGradients>());
#elif CASE == 2
static_assert(check_precision<WithoutCompute>());
#endif

}  // namespace fsdp
