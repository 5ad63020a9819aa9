// SPDX-License-Identifier: Apache-2.0
/// @file
/// A unit under test between two residual streams: its memory on any device, its run, and its float64 reference.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/fsdp/device/meta.hpp>
#include <tessera/fsdp/device/operations.hpp>
#include <tessera/fsdp/nn/instances.hpp>
#include <tessera/fsdp/nn/swiglu_mlp.hpp>
#include <tessera/fsdp/nn/transformer_block.hpp>
#include <tessera/fsdp/testing/module_run.hpp>

#include "mixed.hpp"
#include "reference.hpp"

namespace fsdp::nn::reference {

using fsdp::testing::Mixed;
using fsdp::testing::module_weights;
using fsdp::testing::ModuleFields;
using fsdp::testing::ModuleRun;
using fsdp::testing::Placing;
using fsdp::testing::rounded_numbers;
using fsdp::testing::Slot;
using fsdp::testing::TestRank;

// A kind of unit: a factory of its module, and its forward in float64.

template <std::size_t N>
LowRank<N> paths_of(const Sizes& sizes, const char (&projections)[N + 1]) {
  LowRank<N> paths{.rank = sizes.rank, .scale = sizes.scale, .dropout = sizes.dropout};
  for (std::size_t i = 0; i < N; ++i) paths.on[i] = sizes.has_path(projections[i]);
  return paths;
}
inline SwiGluPaths mlp_paths(const Sizes& sizes) { return {paths_of<2>(sizes, "gu"), paths_of<1>(sizes, "d")}; }

struct BareMlp {
  using Sizes = reference::Sizes;
  template <class L>
  static SwiGluMlp<L> make(const Sizes& s) {
    return {{}, s.hidden, s.intermediate, mlp_paths(s)};
  }
  static Values forward(const Sizes& s, const ValueList& w, const Values& x) { return swiglu_mlp(s, w, x); }
};

template <class L>
RotaryTable make_rotary(const Context<L>& context, const Sizes& s, const Tensor<float>& table) {
  device::enqueue(context.stream, device::RotaryTable{.theta = s.theta, .table = table});
  return {table};
}

struct AttentionHalf {
  using Sizes = reference::Sizes;
  template <class L>
  static ResidualAttention<L> make(const Sizes& s) {
    return {{},    s.hidden, s.heads,  s.kv_heads,   s.head_dim,
            s.eps, s.window, s.biases, s.head_norms, {paths_of<3>(s, "qkv"), paths_of<1>(s, "o")}};
  }
  template <class L>
  static RotaryTable share(Context<L>& context, const Sizes& s) {
    return make_rotary(context, s, context.template save<float>({s.length, s.head_dim}));
  }
  static Values forward(const Sizes& s, const ValueList& w, const Values& x) { return residual_attention(s, w, x); }
};

struct MlpHalf {
  using Sizes = reference::Sizes;
  template <class L>
  static ResidualMlp<L> make(const Sizes& s) {
    return {{}, s.hidden, s.intermediate, s.eps, 1, mlp_paths(s)};
  }
  static Values forward(const Sizes& s, const ValueList& w, const Values& x) { return residual_mlp(s, w, x); }
};

struct Block {
  using Sizes = reference::Sizes;
  template <class L>
  static TransformerBlock<L> make(const Sizes& s) {
    return {{}, AttentionHalf::make<L>(s), MlpHalf::make<L>(s)};
  }
  template <class L>
  static RotaryTable share(Context<L>& context, const Sizes& s) {
    return AttentionHalf::share(context, s);
  }
  static Values forward(const Sizes& s, const ValueList& w, const Values& x) { return transformer_block(s, w, x); }
};

/// Options of a unit's run.
template <class Tiling = tiling::RunTimeTiling>
struct Run {
  Tiling tiling{};
  int micro_batches = 1;
  Placing placing = Placing::adjacent;
  int threads = 1;
};

/// A unit that the conformance kit runs, with packed documents, and a rotary table with its own guards.
template <class Device, class Kind, class Precision, class Tiling = tiling::RunTimeTiling>
struct Unit : ModuleRun<Device, Kind, Precision, Tiling> {
  using Base = ModuleRun<Device, Kind, Precision, Tiling>;

  Slot<Device, float> rotary;  // [S, d]
  std::vector<std::int64_t> documents;
  int polls = 0;

  Unit(const Sizes& sizes, const Run<Tiling>& run)
      : Base({.sizes = sizes, .tiling = run.tiling, .placing = run.placing, .threads = run.threads}),
        rotary(Shape{sizes.length, sizes.head_dim}),
        documents(sizes.documents) {
    this->context.documents = documents;
    this->context.poll = [](void* count) { ++*static_cast<int*>(count); };
    this->context.poll_state = &polls;
    if constexpr (std::is_same_v<decltype(this->shared), RotaryTable>)
      this->shared = make_rotary(this->context, sizes, rotary[0]);
  }
};

/// The results of a run: y of each micro-batch, and gradients summed over micro-batches.
struct Outcome {
  ValueList y, gradients;  ///< `gradients` has the gradient of each weight, then dx of each micro-batch
};

inline std::uint64_t seed_of(int micro_batch) { return 10 * static_cast<std::uint64_t>(micro_batch); }

/// Runs the module over all micro-batches, with the checks of the kit.
template <class Kind, class Precision, class Tiling = tiling::RunTimeTiling>
Outcome outcome(const Sizes& sizes, const Run<Tiling>& run) {
  Unit<device::Cpu, Kind, Precision, Tiling> unit(sizes, run);
  std::vector<std::uint64_t> seeds;
  for (int batch = 0; batch < run.micro_batches; ++batch) seeds.push_back(seed_of(batch));
  bool good = true;
  auto found = fsdp::testing::outcome_of(unit, sizes.in_words(), seeds, good);
  EXPECT_TRUE(unit.rotary.guards_untouched());
  found.gradients.insert(found.gradients.end(), found.dx.begin(), found.dx.end());
  return {found.y, found.gradients};
}

/// Adds the gradients of one more micro-batch to the sums.
inline void add_gradients(Outcome& sum, const ValueList& gradients) {
  sum.gradients.resize(gradients.size());
  std::transform(gradients.begin(), gradients.end(), sum.gradients.begin(), sum.gradients.begin(),
                 [](const Values& more, const Values& before) { return before.empty() ? more : plus(before, more); });
}

/// The outcome in float64, from the same rounded numbers. gradients_of(weights, x, dy) returns the gradients of the
/// weights, then dx.
template <class Kind, class Precision, class Gradients>
Outcome outcome_by(const Gradients& gradients_of, const Sizes& sizes, int micro_batches) {
  using Compute = typename Precision::Compute;
  const ValueList weights = module_weights<Compute>(Kind::template make<Local<device::Cpu, Precision>>(sizes));
  const std::int64_t size = sizes.tokens() * sizes.hidden;
  Outcome result;
  ValueList dx;
  for (int batch = 0; batch < micro_batches; ++batch) {
    const Values x = rounded_numbers<Compute>(seed_of(batch), size);
    ValueList gradients = gradients_of(weights, x, rounded_numbers<Compute>(seed_of(batch) + 1, size));
    result.y.push_back(Kind::forward(sizes, weights, x));
    dx.push_back(gradients.back());
    gradients.pop_back();
    add_gradients(result, gradients);
  }
  result.gradients.insert(result.gradients.end(), dx.begin(), dx.end());
  return result;
}

/// The expected outcome in float64, with gradients by central differences.
template <class Kind, class Precision>
Outcome expected_outcome(const Sizes& sizes, int micro_batches = 1) {
  const auto differences = [&](const ValueList& weights, const Values& x, const Values& dy) {
    return gradients(
        [&](const ValueList& w, const Values& in) { return device::reference::dot(Kind::forward(sizes, w, in), dy); },
        weights, x);
  };
  return outcome_by<Kind, Precision>(differences, sizes, micro_batches);
}

/// Tolerated relative errors: float arithmetic, or in bf16 a few roundings of every intermediate tensor, each up to
/// 2^-9. Gradients also contain cancellation (the gradients of q and k are differences from a mean).
template <class Precision>
constexpr double forward_tolerance = std::is_same_v<Precision, Fp32> ? 2e-6 : 1e-2;
template <class Precision>
constexpr double gradient_tolerance = std::is_same_v<Precision, Fp32> ? 3e-5 : 4e-2;

/// Expects y and each gradient within these relative errors.
inline void expect_near(const Outcome& found, const Outcome& expected, double of_y, double of_gradients) {
  EXPECT_LE(relative(found.y, expected.y), of_y);
  ASSERT_EQ(found.gradients.size(), expected.gradients.size());
  for (std::size_t i = 0; i < expected.gradients.size(); ++i)
    EXPECT_LE(relative(found.gradients[i], expected.gradients[i]), of_gradients) << "gradient " << i;
}

/// Compares all gradients as one vector: over few tokens, the gradients of q and k are small differences of large
/// numbers, and too inexact to be compared separately.
inline void expect_near_together(const Outcome& found, const Outcome& expected, double bound) {
  const auto joined = [](const ValueList& list) {
    Values all;
    for (const Values& values : list) all.insert(all.end(), values.begin(), values.end());
    return all;
  };
  EXPECT_LE(relative(found.y, expected.y), bound);
  EXPECT_LE(relative(joined(found.gradients), joined(expected.gradients)), bound);
}

/// Expects the float64 outcome, within the rounding errors of a precision.
template <class Precision>
void expect_float64(const Outcome& found, const Outcome& expected) {
  expect_near(found, expected, forward_tolerance<Precision>, gradient_tolerance<Precision>);
}

/// Expects that a tiled run equals the untiled one in float; else its error may be up to 1.5 times as large.
template <class Precision>
void expect_untiled(const Outcome& tiled, const Outcome& untiled, const Outcome& expected) {
  if (std::is_same_v<Precision, Fp32>) return expect_near(tiled, untiled, 1e-6, 1e-6);
  EXPECT_LE(relative(tiled.y, expected.y), 1.5 * relative(untiled.y, expected.y));
  ASSERT_EQ(tiled.gradients.size(), expected.gradients.size());
  for (std::size_t i = 0; i < expected.gradients.size(); ++i)
    EXPECT_LE(relative(tiled.gradients[i], expected.gradients[i]),
              1.5 * relative(untiled.gradients[i], expected.gradients[i]) + 1e-6)
        << "gradient " << i;
}

/// The default number of threads: two for weights with gaps, otherwise one.
inline int threads_of(Placing placing) { return placing == Placing::padded ? 2 : 1; }

}  // namespace fsdp::nn::reference
