// SPDX-License-Identifier: Apache-2.0
/// @file
/// SGD and the elementwise parts of Muon over ranges of float shards.
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

void momentum_direction(float scale, float momentum, bool nesterov, const float* gradient, float* state,
                        float* direction, std::int64_t count) {
  for_vectors(count, [=](std::int64_t i, auto part) FSDP_INLINE_LAMBDA {
    const Floats g = load(gradient + i, part) * scale;
    const Floats m = load(state + i, part) * momentum + g;
    store(state + i, m, part);
    store(direction + i, nesterov ? g + m * momentum : m, part);
  });
}

template <class T>
void scale(const float* x, float factor, T* y, std::int64_t count) {
  for_vectors(count,
              [=](std::int64_t i, auto part) FSDP_INLINE_LAMBDA { store(y + i, load(x + i, part) * factor, part); });
}

template <class T>
void combine(float alpha, const T* x, float beta, T* y, std::int64_t count) {
  for_vectors(count, [=](std::int64_t i, auto part) FSDP_INLINE_LAMBDA {
    store(y + i, load(x + i, part) * alpha + load(y + i, part) * beta, part);
  });
}

template <class T>
void step(float decay, float factor, const T* direction, float* main, bf16* model, std::int64_t count) {
  for_vectors(count, [=](std::int64_t i, auto part) FSDP_INLINE_LAMBDA {
    const Floats w = load(main + i, part) * decay - load(direction + i, part) * factor;
    store(main + i, w, part);
    if (model != nullptr) store(model + i, w, part);
  });
}

template <class T>
constexpr DirectionFunctions<T> functions = {.scale = scale<T>, .combine = combine<T>, .step = step<T>};
constexpr StepKernels exported = {{functions<float>, functions<bf16>}, sgd, momentum_direction};

}  // namespace
}  // namespace fsdp::device::cpu

FSDP_EXPORT_KERNELS(StepKernels)
