// SPDX-License-Identifier: Apache-2.0
/// @file
/// SGD, and Muon's elementwise operations. See elements.cuh.
#include "kernel.cuh"

namespace fsdp::device::cuda {
namespace {

template <class Model>
struct StepSgd {
  SgdRules rules;
  const StepDecision* step;
  float* main;
  float* momentum;
  const float* gradient;
  Model* model;
  template <int W>
  __device__ __forceinline__ void operator()(std::int64_t, std::int64_t column) const {
    float w[W], g[W], m[W];
    load(main + column, w);
    if (step->skipped == 0) {
      const float scale = step->gradient_scale, lr = static_cast<float>(step->lr);
      load(gradient + column, g);
#pragma unroll
      for (int i = 0; i < W; ++i) g[i] = g[i] * scale + w[i] * rules.weight_decay;
      if (momentum != nullptr) {
        load(momentum + column, m);
#pragma unroll
        for (int i = 0; i < W; ++i) {
          m[i] = m[i] * rules.momentum + g[i];
          g[i] = rules.nesterov ? g[i] + m[i] * rules.momentum : m[i];
        }
        store(momentum + column, m);
      }
#pragma unroll
      for (int i = 0; i < W; ++i) w[i] -= g[i] * lr;
      store(main + column, w);
    }
    if (model != nullptr) store(model + column, w);
  }
};

struct Direct {
  float factor;
  bool nesterov;
  const StepDecision* step;
  const float* gradient;
  float* state;
  float* direction;
  template <int W>
  __device__ __forceinline__ void operator()(std::int64_t, std::int64_t column) const {
    float g[W], m[W];
    const bool skipped = step->skipped != 0;
    const float scale = step->gradient_scale;
    load(gradient + column, g);
    load(state + column, m);
#pragma unroll
    for (int i = 0; i < W; ++i) {
      g[i] *= scale;
      const float next = m[i] * factor + g[i];
      g[i] = skipped ? 0.0f : nesterov ? g[i] + next * factor : next;
      m[i] = skipped ? m[i] : next;
    }
    store(state + column, m);
    store(direction + column, g);
  }
};

template <class T>
struct Normalize {
  const float* x;
  const double* squares;
  T* y;
  template <int W>
  __device__ __forceinline__ void operator()(std::int64_t, std::int64_t column) const {
    float a[W];
    const auto factor = static_cast<float>(1 / (sqrt(*squares) + 1e-7));
    load(x + column, a);
#pragma unroll
    for (int i = 0; i < W; ++i) a[i] *= factor;
    store(y + column, a);
  }
};

template <class T>
struct Combine {
  float alpha, beta;
  const T* x;
  T* y;
  template <int W>
  __device__ __forceinline__ void operator()(std::int64_t, std::int64_t column) const {
    float a[W], b[W];
    load(x + column, a);
    load(y + column, b);
#pragma unroll
    for (int i = 0; i < W; ++i) b[i] = a[i] * alpha + b[i] * beta;
    store(y + column, b);
  }
};

template <class T>
struct Move {
  float weight_decay, scale;
  const StepDecision* step;
  const T* direction;
  float* main;
  T* model;
  template <int W>
  __device__ __forceinline__ void operator()(std::int64_t, std::int64_t column) const {
    float w[W], d[W];
    load(main + column, w);
    if (step->skipped == 0) {
      const auto decay = static_cast<float>(1.0 - step->lr * static_cast<double>(weight_decay));
      const auto factor = static_cast<float>(step->lr * static_cast<double>(scale));
      load(direction + column, d);
#pragma unroll
      for (int i = 0; i < W; ++i) w[i] = w[i] * decay - d[i] * factor;
      store(main + column, w);
    }
    if (model != nullptr) store(model + column, w);
  }
};

}  // namespace

template <class Model>
void compute(Lane lane, const SgdStep<Model>& op) {
  const StepSgd<Model> step{op.rules,           op.step.data(),     op.main.data(),
                            op.momentum.data(), op.gradient.data(), op.model.data()};
  run_on(lane, "sgd", step, static_cast<const Tensor<float>&>(op.main), op.gradient, op.momentum, op.model);
}

void compute(Lane lane, const MomentumDirection& op) {
  run_on(lane, "momentum_direction",
         Direct{op.momentum, op.nesterov, op.step.data(), op.gradient.data(), op.state.data(), op.direction.data()},
         op.gradient, op.state, op.direction);
}

template <class T>
void compute(Lane lane, const Normalized<T>& op) {
  run_on(lane, "normalized", Normalize<T>{op.x.data(), op.squares.data(), op.y.data()}, op.x, op.y);
}

template <class T>
void compute(Lane lane, const Combination<T>& op) {
  run_on(lane, "combination", Combine<T>{op.alpha, op.beta, op.x.data(), op.y.data()}, op.x, op.y);
}

template <class T>
void compute(Lane lane, const DirectionStep<T>& op) {
  const Move<T> step{op.weight_decay, op.scale, op.step.data(), op.direction.data(), op.main.data(), op.model.data()};
  run_on(lane, "direction_step", step, static_cast<const Tensor<float>&>(op.main), op.direction, op.model);
}

FSDP_FOR_TYPES(compute, Lane, SgdStep)
FSDP_FOR_TYPES(compute, Lane, Normalized)
FSDP_FOR_TYPES(compute, Lane, Combination)
FSDP_FOR_TYPES(compute, Lane, DirectionStep)

}  // namespace fsdp::device::cuda
