// SPDX-License-Identifier: Apache-2.0
/// @file
/// SGD over ranges of float shards.
#include "tables.hpp"
#include "vector.hpp"

namespace fsdp::device::cpu {
namespace {

template <bool with_model>
void sgd_update(const SgdFactors& f, float* main, float* momentum, const float* gradient, bf16* model,
                std::int64_t count) {
  for_vectors(count, [=](std::int64_t i, auto part) FSDP_INLINE_LAMBDA {
    const Floats w = load(main + i, part);
    const Floats g = load(gradient + i, part) * f.gradient_scale + w * f.weight_decay;
    Floats direction = g;
    if (momentum != nullptr) {
      const Floats m = load(momentum + i, part) * f.momentum + g;
      store(momentum + i, m, part);
      direction = f.nesterov ? g + m * f.momentum : m;
    }
    const Floats stepped = w - direction * f.lr;
    store(main + i, stepped, part);
    if constexpr (with_model) store(model + i, stepped, part);
  });
}

void sgd(const SgdFactors& factors, float* main, float* momentum, const float* gradient, bf16* model,
         std::int64_t count) {
  if (model == nullptr)
    sgd_update<false>(factors, main, momentum, gradient, model, count);
  else
    sgd_update<true>(factors, main, momentum, gradient, model, count);
}

constexpr SgdKernels exported = {.sgd = sgd};

}  // namespace
}  // namespace fsdp::device::cpu

FSDP_EXPORT_KERNELS(SgdKernels)
