// SPDX-License-Identifier: Apache-2.0
/// @file
/// SwiGLU over ranges of elements.
#include "../../../cpu/kernels/vector.hpp"
#include "tables.hpp"

namespace fsdp::device::cpu {
namespace {

FSDP_INLINE Floats sigmoid(Floats x) { return 1.0f / (1.0f + exponential(-x)); }

template <class T>
void forward(const T* gate, const T* up, T* h, std::int64_t count) {
  for_vectors(count, [=](std::int64_t i, auto part) FSDP_INLINE_LAMBDA {
    const Floats g = load(gate + i, part);
    store(h + i, g * sigmoid(g) * load(up + i, part), part);
  });
}

template <class T>
void backward(T* gate, T* up, T* dh, std::int64_t count) {
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

template <class T>
constexpr SwiGluFunctions<T> functions = {.forward = forward<T>, .backward = backward<T>};
constexpr SwiGluKernels exported = {{functions<float>, functions<bf16>}};

}  // namespace
}  // namespace fsdp::device::cpu

FSDP_EXPORT_KERNELS(SwiGluKernels)
