// SPDX-License-Identifier: Apache-2.0
/// @file
/// The elementwise parts of Muon over ranges of float shards.
#include "../../../cpu/kernels/vector.hpp"
#include "tables.hpp"

namespace fsdp::device::cpu {
namespace {

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
constexpr DirectionKernels exported = {{functions<float>, functions<bf16>}, momentum_direction};

}  // namespace
}  // namespace fsdp::device::cpu

FSDP_EXPORT_KERNELS(DirectionKernels)
