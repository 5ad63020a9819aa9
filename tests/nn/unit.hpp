// SPDX-License-Identifier: Apache-2.0
/// @file
/// A unit between two residual streams under test: its memory on any device, and how it is run and what float64 says.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include <fsdp/nn/swiglu_mlp.hpp>
#include <fsdp/nn/transformer_block.hpp>

#include "slot.hpp"

namespace fsdp::nn::reference {

// A kind of unit: how to make the module, and the same in float64.

struct BareMlp {
  template <class L>
  static SwiGluMlp<L> make(const Sizes& s) {
    return {{}, s.hidden, s.intermediate};
  }
  static Values forward(const Sizes& s, const ValueList& w, const Values& x) { return swiglu_mlp(s, w, x); }
};

struct AttentionHalf {
  template <class L>
  static ResidualAttention<L> make(const Sizes& s) {
    return {{}, s.hidden, s.heads, s.kv_heads, s.head_dim, s.eps};
  }
  static Values forward(const Sizes& s, const ValueList& w, const Values& x) { return residual_attention(s, w, x); }
};

struct MlpHalf {
  template <class L>
  static ResidualMlp<L> make(const Sizes& s) {
    return {{}, s.hidden, s.intermediate, s.eps};
  }
  static Values forward(const Sizes& s, const ValueList& w, const Values& x) { return residual_mlp(s, w, x); }
};

struct Block {
  template <class L>
  static TransformerBlock<L> make(const Sizes& s) {
    return {{}, AttentionHalf::make<L>(s), MlpHalf::make<L>(s)};
  }
  static Values forward(const Sizes& s, const ValueList& w, const Values& x) { return transformer_block(s, w, x); }
};

/// How a unit is run.
template <class Tiling = tiling::RunTime>
struct Run {
  Tiling tiling{};
  int micro_batches = 1;
  Placing placing = Placing::adjacent;
  int threads = 1;
};

/// A unit with its weights, gradients, input, output and residual gradient.
template <class Device, class Kind, class Precision, class Tiling = tiling::RunTime>
class Unit {
 public:
  using L = Local<Device, Precision, Tiling>;
  using Compute = typename L::Compute;
  using Module = decltype(Kind::template make<L>(Sizes{}));

  TestRank<Device> rank;
  Module module;
  ModuleFields<Device, Module> fields;
  Slot<Device, Compute> stream;  // x, y, dy: [T, H] each
  Slot<Device, float> rotary;    // [S, d]
  std::vector<std::int64_t> documents;
  typename Module::Saved saved{};
  int polls = 0;
  Context<L> context;

  Unit(const Sizes& sizes, const Run<Tiling>& run)
      : rank(run.threads, (std::int64_t{1} << 20) * (sizes.length > 500 ? 4 : 1) +
                              16 * sizes.tokens() * (sizes.hidden + sizes.intermediate)),
        module(Kind::template make<L>(sizes)),
        fields(module, run.placing),
        stream(std::vector<Shape>(3, {sizes.tokens(), sizes.hidden}), Placing::padded),
        rotary(Shape{sizes.length, sizes.head_dim}),
        documents(sizes.documents),
        context{.arena = rank.arena,
                .stream = rank.stream,
                .tiling = run.tiling,
                .sequences = sizes.sequences,
                .sequence_length = sizes.length,
                .documents = documents,
                .poll = [](void* count) { ++*static_cast<int*>(count); },
                .poll_state = &polls} {
    device::enqueue(rank.stream, device::RotaryTable{.theta = sizes.theta, .table = rotary[0]});
  }
  void forward() {
    if constexpr (BlockModule<Module, L>)
      module.forward(context, RotaryTable{rotary[0]}, fields.weight_views(), saved, stream[0], stream[1]);
    else
      module.forward(context, fields.weight_views(), saved, stream[0], stream[1]);
  }
  void backward() {
    const auto weights = fields.weight_views();
    if constexpr (BlockModule<Module, L>)
      module.backward(context, RotaryTable{rotary[0]}, weights, fields.gradient_views(), saved, stream[2]);
    else
      module.backward(context, weights, fields.gradient_views(), saved, stream[2]);
  }
};

/// What came out: y and dx of each micro-batch, and the sums of the weights' gradients.
struct Outcome {
  ValueList y, gradients;  ///< gradients: of the weights, then dx of each micro-batch
};

inline std::uint64_t seed_of(int micro_batch) { return 10 * static_cast<std::uint64_t>(micro_batch); }

/// Runs the module over all micro-batches, with NaN in all memory that it should not read, and checks that it wrote
/// nothing but its outputs and took nothing from the arena for longer than it may.
template <class Kind, class Precision, class Tiling = tiling::RunTime>
Outcome outcome(const Sizes& sizes, const Run<Tiling>& run) {
  using Compute = typename Precision::Compute;
  Unit<device::Cpu, Kind, Precision, Tiling> unit(sizes, run);
  const ValueList weights = random_weights<Compute>(unit.fields.shapes);
  for (std::size_t i = 0; i < weights.size(); ++i) unit.fields.weights.set(i, weights[i]);
  const std::int64_t size = sizes.tokens() * sizes.hidden;
  Outcome result;
  ValueList dx;
  for (int batch = 0; batch < run.micro_batches; ++batch) {
    const Values x = random_values<Compute>(seed_of(batch), size);
    const Values dy = random_values<Compute>(seed_of(batch) + 1, size);
    unit.stream.poison();
    unit.stream.set(0, x);
    unit.rank.poison_free_memory();
    const auto low = unit.rank.arena.mark(device::Cpu::Arena::End::low);
    const std::int64_t high = unit.rank.high_end();

    unit.forward();
    result.y.push_back(unit.stream.values(1));
    EXPECT_EQ(unit.rank.high_end(), high) << "forward";

    unit.stream.poison();  // neither y nor the memory of dy is read before dy is there; x is, and comes back
    unit.stream.set(0, x);
    unit.stream.set(2, dy);
    const std::int64_t saved = unit.rank.low_end();
    unit.rank.poison_free_memory();
    unit.backward();
    dx.push_back(unit.stream.values(2));
    EXPECT_EQ(unit.rank.high_end(), high) << "backward";
    EXPECT_EQ(unit.rank.low_end(), saved) << "backward";
    EXPECT_EQ(unit.stream.values(0), x);
    unit.rank.arena.release(device::Cpu::Arena::End::low, low);
  }
  result.gradients = unit.fields.gradients.all_values();
  result.gradients.insert(result.gradients.end(), dx.begin(), dx.end());
  EXPECT_EQ(unit.fields.weights.all_values(), weights);
  EXPECT_TRUE(unit.fields.weights.guards_untouched() && unit.fields.gradients.guards_untouched());
  EXPECT_TRUE(unit.stream.guards_untouched() && unit.rotary.guards_untouched() && unit.rank.sentinels_untouched());
  return result;
}

/// The same in float64, from the same rounded numbers.
template <class Kind, class Precision>
Outcome expected_outcome(const Sizes& sizes, int micro_batches = 1) {
  using Compute = typename Precision::Compute;
  using L = Local<device::Cpu, Precision, tiling::RunTime>;
  const ValueList weights = random_weights<Compute>(shapes_of(Kind::template make<L>(sizes)));
  const std::int64_t size = sizes.tokens() * sizes.hidden;
  Outcome result;
  ValueList dx;
  for (int batch = 0; batch < micro_batches; ++batch) {
    const Values x = random_values<Compute>(seed_of(batch), size);
    const Values dy = random_values<Compute>(seed_of(batch) + 1, size);
    result.y.push_back(Kind::forward(sizes, weights, x));
    const ValueList gradients = reference::gradients(
        [&](const ValueList& w, const Values& in) { return device::reference::dot(Kind::forward(sizes, w, in), dy); },
        weights, x);
    for (std::size_t i = 0; i < weights.size(); ++i) {
      if (batch == 0) result.gradients.push_back(Values(gradients[i].size(), 0.0));
      result.gradients[i] = device::reference::plus(result.gradients[i], gradients[i]);
    }
    dx.push_back(gradients.back());
  }
  result.gradients.insert(result.gradients.end(), dx.begin(), dx.end());
  return result;
}

/// Relative errors of arithmetic in float; in bf16 of a few roundings, each up to 2^-9, of every intermediate tensor,
/// and in gradients of what cancels (those of q and k are differences from a mean).
template <class Precision>
constexpr double forward_tolerance = std::is_same_v<Precision, Fp32> ? 2e-6 : 1e-2;
template <class Precision>
constexpr double gradient_tolerance = std::is_same_v<Precision, Fp32> ? 3e-5 : 4e-2;

}  // namespace fsdp::nn::reference
