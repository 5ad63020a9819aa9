// SPDX-License-Identifier: Apache-2.0
/// @file
/// Elementwise operations: add, copy, fill, scale, SwiGLU, AdamW. See elements.cuh.
#include "../dropout.hpp"
#include "arithmetic.cuh"
#include "elements.cuh"

namespace fsdp::device::cuda {
namespace {

template <class T>
struct Add {
  Rows<const T> x;
  Rows<T> y;
  template <int W>
  __device__ __forceinline__ void operator()(std::int64_t row, std::int64_t column) const {
    float a[W], b[W];
    load(x.row(row) + column, a);
    load(y.row(row) + column, b);
#pragma unroll
    for (int i = 0; i < W; ++i) b[i] += a[i];
    store(y.row(row) + column, b);
  }
};

template <class X, class Y>
struct Copy {
  Rows<const X> x;
  Rows<Y> y;
  template <int W>
  __device__ __forceinline__ void operator()(std::int64_t row, std::int64_t column) const {
    float a[W];
    load(x.row(row) + column, a);
    store(y.row(row) + column, a);
  }
};

template <class T>
struct Fill {
  Rows<T> y;
  float value;
  template <int W>
  __device__ __forceinline__ void operator()(std::int64_t row, std::int64_t column) const {
    float a[W];
#pragma unroll
    for (int i = 0; i < W; ++i) a[i] = value;
    store(y.row(row) + column, a);
  }
};

template <class X, class Y>
struct Scale {
  Rows<const X> x;
  Rows<Y> y;
  float factor;
  bool accumulate;
  Dropout dropout;
  std::uint32_t dropped_below;
  template <int W>
  __device__ __forceinline__ void operator()(std::int64_t row, std::int64_t column) const {
    float a[W], b[W];
    load(x.row(row) + column, a);
#pragma unroll
    for (int i = 0; i < W; ++i) a[i] *= factor;
    if (dropped_below != 0) {
      const std::uint32_t key = dropout_row(dropout.key, dropout.first_row + row);
      const auto first = static_cast<std::uint32_t>(dropout.first_column + column);
#pragma unroll
      for (int i = 0; i < W; ++i)
        if (dropout_word(key, first + static_cast<std::uint32_t>(i)) < dropped_below) a[i] = 0;
    }
    if (accumulate) {
      load(y.row(row) + column, b);
#pragma unroll
      for (int i = 0; i < W; ++i) a[i] += b[i];
    }
    store(y.row(row) + column, a);
  }
};

template <class T>
struct SwiGlu {
  Rows<const T> gate, up;
  Rows<T> h;
  template <int W>
  __device__ __forceinline__ void operator()(std::int64_t row, std::int64_t column) const {
    float g[W], u[W];
    load(gate.row(row) + column, g);
    load(up.row(row) + column, u);
#pragma unroll
    for (int i = 0; i < W; ++i) g[i] = cuda::swiglu(g[i], u[i]);
    store(h.row(row) + column, g);
  }
};

template <class T>
struct SwiGluBackward {
  Rows<T> gate, up, dh;
  template <int W>
  __device__ __forceinline__ void operator()(std::int64_t row, std::int64_t column) const {
    float g[W], u[W], d[W];
    load(gate.row(row) + column, g);
    load(up.row(row) + column, u);
    load(dh.row(row) + column, d);
#pragma unroll
    for (int i = 0; i < W; ++i) cuda::swiglu_backward(g[i], u[i], d[i]);
    store(gate.row(row) + column, g);
    store(up.row(row) + column, u);
    store(dh.row(row) + column, d);
  }
};

__global__ void adamw_factors(AdamWRules rules, const StepDecision* step, AdamWFactors* factors) {
  if (threadIdx.x == 0) *factors = AdamWFactors(rules, *step);
}

/// Model is void if no model weights are written.
template <class Model>
struct StepAdamW {
  const StepDecision* step;
  const AdamWFactors* known;
  float* main;
  float* first_moment;
  float* second_moment;
  const float* gradient;
  Model* model;
  template <int W>
  __device__ __forceinline__ void operator()(std::int64_t, std::int64_t column) const {
    float w[W], m[W], v[W], g[W];
    load(main + column, w);
    if (step->skipped != 0) {
      if constexpr (!std::is_void_v<Model>) store(model + column, w);
      return;
    }
    const AdamWFactors factors = *known;
    load(first_moment + column, m);
    load(second_moment + column, v);
    load(gradient + column, g);
#pragma unroll
    for (int i = 0; i < W; ++i) cuda::adamw(factors, w[i], m[i], v[i], g[i]);
    store(main + column, w);
    store(first_moment + column, m);
    store(second_moment + column, v);
    if constexpr (!std::is_void_v<Model>) store(model + column, w);
  }
};

}  // namespace

template <class T>
void add(Lane lane, Tensor<const T> x, Tensor<T> y) {
  run_on(lane, "add", Add<T>{x, y}, x, y);
}
template <class X, class Y>
void copy(Lane lane, Tensor<const X> x, Tensor<Y> y) {
  run_on(lane, "copy", Copy<X, Y>{x, y}, x, y);
}
template <class T>
void fill(Lane lane, Tensor<T> y, float value) {
  run_on(lane, "fill", Fill<T>{y, value}, y);
}
template <class X, class Y>
void scale(Lane lane, Tensor<const X> x, Tensor<Y> y, float factor, bool accumulate, const Dropout& dropout) {
  const Scale<X, Y> operation{
      x, y, factor / (1 - dropout.rate), accumulate, dropout, dropped_below(static_cast<double>(dropout.rate))};
  const Access accesses[] = {access(y), access(x)};
  if (dropout.rate > 0)  // dropout needs each element's row
    run<widest<X, Y>>(lane, "scale", operation, y.rows(), y.columns(), accesses);
  else
    run_on(lane, "scale", operation, y, x);
}
template <class T>
void swiglu(Lane lane, Tensor<const T> gate, Tensor<const T> up, Tensor<T> h) {
  run_on(lane, "swiglu", SwiGlu<T>{gate, up, h}, gate, up, h);
}
template <class T>
void swiglu_backward(Lane lane, Tensor<T> gate, Tensor<T> up, Tensor<T> dh) {
  run_on(lane, "swiglu_backward", SwiGluBackward<T>{gate, up, dh}, gate, up, dh);
}

template <class Model>
void adamw(Lane lane, const AdamWRules& rules, const StepDecision* step, Tensor<float> main, Tensor<float> first_moment,
           Tensor<float> second_moment, Tensor<const float> gradient, Tensor<Model> model, AdamWFactors* factors) {
  if (main.numel() == 0) return;
  launch(lane, "adamw_factors", adamw_factors, Grid{.threads = warp}, 0, rules, step, factors);
  if (model.data() == nullptr)
    run_on(lane, "adamw",
           StepAdamW<void>{step, factors, main.data(), first_moment.data(), second_moment.data(), gradient.data(),
                           nullptr},
           main, first_moment, second_moment, gradient);
  else
    run_on(lane, "adamw",
           StepAdamW<Model>{step, factors, main.data(), first_moment.data(), second_moment.data(), gradient.data(),
                            model.data()},
           main, first_moment, second_moment, gradient, model);
}

#define FSDP_ELEMENTS(T)                                                                                            \
  template void add<T>(Lane, Tensor<const T>, Tensor<T>);                                                           \
  template void copy<T, float>(Lane, Tensor<const T>, Tensor<float>);                                               \
  template void copy<T, bf16>(Lane, Tensor<const T>, Tensor<bf16>);                                                 \
  template void copy<T, f16>(Lane, Tensor<const T>, Tensor<f16>);                                                   \
  template void fill<T>(Lane, Tensor<T>, float);                                                                    \
  template void scale<T, T>(Lane, Tensor<const T>, Tensor<T>, float, bool, const Dropout&);                         \
  template void swiglu<T>(Lane, Tensor<const T>, Tensor<const T>, Tensor<T>);                                       \
  template void swiglu_backward<T>(Lane, Tensor<T>, Tensor<T>, Tensor<T>);                                          \
  template void adamw<T>(Lane, const AdamWRules&, const StepDecision*, Tensor<float>, Tensor<float>, Tensor<float>, \
                         Tensor<const float>, Tensor<T>, AdamWFactors*);
FSDP_ELEMENTS(float)
FSDP_ELEMENTS(bf16)
FSDP_ELEMENTS(f16)
template void fill<double>(Lane, Tensor<double>, float);
template void scale<bf16, float>(Lane, Tensor<const bf16>, Tensor<float>, float, bool, const Dropout&);
template void scale<f16, float>(Lane, Tensor<const f16>, Tensor<float>, float, bool, const Dropout&);

}  // namespace fsdp::device::cuda
