// SPDX-License-Identifier: Apache-2.0
/// @file
/// Elementwise operations: add, copy, fill, scale, SwiGLU, AdamW. See kernel.cuh.
#include "../host_device.hpp"
#include "arithmetic.cuh"
#include "kernel.cuh"

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

/// `Model` is void if model weights are not written.
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
    for (int i = 0; i < W; ++i) device::adamw(factors, w[i], m[i], v[i], g[i]);
    store(main + column, w);
    store(first_moment + column, m);
    store(second_moment + column, v);
    if constexpr (!std::is_void_v<Model>) store(model + column, w);
  }
};

}  // namespace

template <class T>
void compute(Lane lane, const device::Add<T>& op) {
  run_on(lane, "add", Add<T>{op.x, op.y}, op.x, op.y);
}
template <class X, class Y>
void compute(Lane lane, const device::Copy<X, Y>& op) {
  run_on(lane, "copy", Copy<X, Y>{op.x, op.y}, op.x, op.y);
}
template <class T>
void compute(Lane lane, const device::Fill<T>& op) {
  run_on(lane, "fill", Fill<T>{op.y, op.value}, op.y);
}
template <class X, class Y>
void compute(Lane lane, const device::Scale<X, Y>& op) {
  const Dropout& dropout = op.dropout;
  const Scale<X, Y> operation{op.x,
                              op.y,
                              op.factor / (1 - dropout.rate),
                              op.write == Write::accumulate,
                              dropout,
                              dropped_below(static_cast<double>(dropout.rate))};
  const Access accesses[] = {access(op.y), access(op.x)};
  if (dropout.rate > 0)  // dropout needs the row index of each element
    run<widest<X, Y>>(lane, "scale", operation, op.y.rows(), op.y.columns(), accesses);
  else
    run_on(lane, "scale", operation, op.y, op.x);
}
template <class T>
void compute(Lane lane, const device::SwiGlu<T>& op) {
  run_on(lane, "swiglu", SwiGlu<T>{op.gate, op.up, op.h}, op.gate, op.up, op.h);
}
template <class T>
void compute(Lane lane, const device::SwiGluBackward<T>& op) {
  run_on(lane, "swiglu_backward", SwiGluBackward<T>{op.gate, op.up, op.dh}, op.gate, op.up, op.dh);
}

/// `memory` stores the bias corrections, which are computed once instead of by every thread.
template <class Model>
void compute(Lane lane, const AdamWStep<Model>& op, Scratch memory) {
  if (op.main.numel() == 0) return;
  auto* const factors = reinterpret_cast<AdamWFactors*>(memory.data);
  launch(lane, "adamw_factors", adamw_factors, Grid{.threads = warp}, 0, op.rules, op.step.data(), factors);
  const auto step = [&]<class M>(M* model, const auto&... written) {
    run_on(lane, "adamw",
           StepAdamW<M>{op.step.data(), factors, op.main.data(), op.first_moment.data(), op.second_moment.data(),
                        op.gradient.data(), model},
           op.main, op.first_moment, op.second_moment, op.gradient, written...);
  };
  if (op.model.data() == nullptr)
    step(static_cast<void*>(nullptr));
  else
    step(op.model.data(), op.model);
}

FSDP_FOR_TYPES_OF(float, compute, Lane, device::Copy)
FSDP_FOR_TYPES_OF(bf16, compute, Lane, device::Copy)
FSDP_FOR_TYPES_OF(f16, compute, Lane, device::Copy)
FSDP_FOR_TYPES(compute, Lane, device::Add)
FSDP_FOR_TYPES(compute, Lane, device::Fill)
FSDP_FOR_TYPES(compute, Lane, device::Scale)
FSDP_FOR_TYPES(compute, Lane, device::SwiGlu)
FSDP_FOR_TYPES(compute, Lane, device::SwiGluBackward)
FSDP_FOR_TYPES(compute, Lane, AdamWStep, Scratch)
template void compute(Lane, const device::Fill<double>&);
template void compute(Lane, const device::Scale<bf16, float>&);
template void compute(Lane, const device::Scale<f16, float>&);

}  // namespace fsdp::device::cuda
