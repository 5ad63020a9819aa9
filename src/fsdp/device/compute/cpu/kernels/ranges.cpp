// SPDX-License-Identifier: Apache-2.0
/// @file
/// Kernels over ranges of elements: SwiGLU, and the elementwise parts of Muon.
#include "../../../cpu/kernels/vector.hpp"
#include "tables.hpp"

namespace fsdp::device::cpu {
namespace {

FSDP_INLINE Floats sigmoid(Floats x) { return 1.0f / (1.0f + exponential(-x)); }

template <class T>
void swiglu(const T* gate, const T* up, T* h, std::int64_t count) {
  for_vectors(count, [=](std::int64_t i, auto part) FSDP_INLINE_LAMBDA {
    const Floats g = load(gate + i, part);
    store(h + i, g * sigmoid(g) * load(up + i, part), part);
  });
}

template <class T>
void swiglu_backward(T* gate, T* up, T* dh, std::int64_t count) {
  for_vectors(count, [=](std::int64_t i, auto part) FSDP_INLINE_LAMBDA {
    const Floats g = load(gate + i, part);
    const Floats u = load(up + i, part);
    const Floats d = load(dh + i, part);
    const Floats s = sigmoid(g);
    const Floats silu = g * s;
    store(gate + i, d * u * (s * (1.0f + g * (1.0f - s))), part);
    store(up + i, d * silu, part);
    store(dh + i, silu * u, part);
  });
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
constexpr RangeFunctions<T> range_functions = {.swiglu = swiglu<T>,
                                               .swiglu_backward = swiglu_backward<T>,
                                               .scale = scale<T>,
                                               .combine = combine<T>,
                                               .step = step<T>};

}  // namespace

FSDP_EXPORT_KERNELS(RangeKernels, {{range_functions<float>, range_functions<bf16>}, momentum_direction})

}  // namespace fsdp::device::cpu
