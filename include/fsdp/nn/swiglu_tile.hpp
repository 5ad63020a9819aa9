// SPDX-License-Identifier: Apache-2.0
/// @file
/// One tile of a SwiGLU MLP: its matmuls, their memory, and the costs that a tiling policy plans with.
///
/// Backward runs in place on three tile buffers: gate, up and dh are overwritten with dgate, dup and h. A tile may also
/// be computed in blocks of intermediate columns; sums over blocks are then accumulated in float.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/operations.hpp>
#include <tessera/fsdp/nn/low_rank.hpp>
#include <tessera/fsdp/nn/module.hpp>
#include <tessera/fsdp/nn/plan_of.hpp>
#include <tessera/fsdp/nn/projection.hpp>
#include <tessera/tiling/policies.hpp>

namespace fsdp::nn {

template <class V>
struct SwiGluFields {
  V gate, up, down;  // [I, H], [I, H], [H, I]
  LowRankFields<2, V> in_paths = {};
  LowRankFields<1, V> down_path = {};
};

/// The low-rank paths of gate and up, which read the same input, and of down.
struct SwiGluPaths {
  LowRank<2> in = {};
  LowRank<1> down = {};

  /// Columns per token that the paths add to a tile's backward: u and its gradient, first for down, then for gate and
  /// up.
  std::int64_t columns() const { return 2 * std::max(in.columns(), down.columns()); }
  /// Adds the memory of dropout in training: a copy of x [t, H] for gate and up, and a copy of h [t, I], or of a block
  /// of h, for down. The two are never alive together, so the larger one counts. With blocks of columns both count,
  /// since a block of h may be narrower than x.
  void add_dropout(tiling::Problem& problem, std::int64_t hidden, std::int64_t size) const {
    const std::int64_t of_h = down.drops() ? problem.columns : 0, of_x = in.drops() ? hidden : 0;
    if (down.drops()) problem.tile_bytes_per_token_column += size;
    problem.tile_bytes_per_token += std::max<std::int64_t>(of_x - of_h, 0) * size;
    problem.blocked_bytes_per_token += std::min(of_x, of_h) * size;
  }
};

/// A tile: its weights, its memory and its computations. SwiGluMlp and ResidualMlp loop over tiles.
template <class L>
class SwiGluTile {
 public:
  using Compute = typename L::Compute;
  using Weights = SwiGluFields<typename L::Weight>;
  using Gradients = SwiGluFields<GradientView<typename L::Accumulate>>;

  /// Returns the problem that a tiling policy plans, the same for training and for evaluation. A kept token costs gate
  /// and up; a token of a tile costs gate, up, h, the columns of the paths and the unit's `own_columns`.
  static tiling::Problem problem(std::int64_t tokens, std::int64_t hidden, std::int64_t intermediate,
                                 const SwiGluPaths& paths, std::int64_t own_columns, std::int64_t repeats) {
    const auto size = static_cast<std::int64_t>(sizeof(Compute));
    const auto wide = static_cast<std::int64_t>(sizeof(typename L::Accumulate));
    const std::int64_t weight = hidden * intermediate;
    tiling::Problem problem{
        .tokens = tokens,
        .columns = intermediate,
        .kept_bytes_per_token = 2 * intermediate * size,
        .tile_bytes_per_token = (own_columns + paths.columns()) * size,
        .tile_bytes_per_token_column = 3 * size,
        .blocked_bytes_per_token = hidden * static_cast<std::int64_t>(sizeof(float)),
        .recomputed_flops_per_token = 4 * weight,
        .traffic_per_tile = 3 * weight * (3 * size + 2 * wide),  // forward, replay, dx; gradients read and written
        .flops_per_byte = device::flops_per_byte<typename L::Device>,
        .repeats = repeats};
    paths.add_dropout(problem, hidden, size);
    return problem;
  }

  /// Allocates gate and up of the kept tiles, one tile after the other.
  static Tensor<Compute> save_kept(Context<L>& context, const tiling::TilePlan& plan, std::int64_t intermediate) {
    return context.template save<Compute>({plan.kept_tokens(), 2 * intermediate});  // [kept tokens, 2 I]
  }

  /// Calls body(tile, frame) for each tile of the plan, with a separate arena frame. `kept` is the tensor that
  /// save_kept returned.
  template <class Body>
  static void for_each(Context<L>& context, const tiling::TilePlan& plan, const SwiGluPaths& paths,
                       const Weights& weights, Tensor<Compute> kept, Body body) {
    std::int64_t row = 0;
    const auto alike = [&](std::size_t i) {
      const tiling::Tile &tile = plan.tiles[i], &before = plan.tiles[i - 1];
      return tile.tokens() == before.tokens() && !tile.kept && !before.kept;
    };
    repeat(context, plan.tiles.size(), alike, [&](std::size_t i) {
      const tiling::Tile& tile = plan.tiles[i];
      typename L::Frame frame(context.arena);
      SwiGluTile self(context, paths, weights, tile);
      if (tile.kept) {
        self.kept_ = kept.slice(row, row + tile.tokens());
        row += tile.tokens();
      } else {
        self.block_ = plan.columns_per_block;
      }
      body(self, frame);
    });
  }

  /// Returns the tile's rows of a tensor of all tokens.
  template <class T>
  Tensor<T> rows(Tensor<T> all) const {
    return all.slice(tile_.begin, tile_.end);
  }

  /// y (+)= down(silu(gate(x)) up(x)).
  void forward(Tensor<const Compute> x, Tensor<Compute> y, Write write) const {
    if (block_ > 0) return forward_blocked(x, y, write);
    typename L::Frame frame(context_->arena);
    const GateUp g = take_gate_up(frame);
    const auto h = frame.template allocate<Compute>({tokens(), columns()});  // [t, I]
    expand(*weights_, x, g);
    contract(*weights_, g, h, y, write, 0);
  }

  /// Recomputes gate and up of a kept tile. Does nothing for other tiles, whose backward recomputes them.
  void replay(Tensor<const Compute> x) const {
    if (tile_.kept) expand(*weights_, x, split(*weights_, kept_));
  }
  bool kept() const { return tile_.kept; }

  /// Writes the weights' gradients, then the gradient of x to dx. dx may alias x or dy: it is written after both were
  /// last read.
  void backward(const Gradients& gradients, Tensor<const Compute> x, Tensor<const Compute> dy,
                Tensor<Compute> dx) const {
    if (block_ > 0) return backward_blocked(gradients, x, dy, dx);
    typename L::Frame frame(context_->arena);
    const GateUp g = take_gate_up(frame);
    const auto dh = frame.template allocate<Compute>({tokens(), columns()});  // [t, I]
    if (!tile_.kept) expand(*weights_, x, g);
    multiply(*context_, dy, Tensor<const Compute>(weights_->down), dh);
    context_->progress();
    backward_matmuls(*weights_, gradients, x, g, dh, dy, dx, Write::overwrite, 0);
  }

 private:
  /// Gate and up in one buffer. They are adjacent columns if one matmul computes both; else one is stored after the
  /// other, since oneDNN needs large scratch for outputs with gaps between rows.
  struct GateUp {
    Tensor<Compute> gate, up;  // [t, c]
  };

  SwiGluTile(Context<L>& context, const SwiGluPaths& paths, const Weights& weights, const tiling::Tile& tile)
      : context_(&context), paths_(&paths), weights_(&weights), tile_(tile) {}

  std::int64_t tokens() const { return tile_.tokens(); }
  std::int64_t columns() const { return Tensor<const Compute>(weights_->gate).rows(); }

  static GateUp split(const Weights& weights, Tensor<Compute> buffer) {
    const std::int64_t half = buffer.columns() / 2;
    if (adjacent<const Compute, 2>({weights.gate, weights.up}))
      return {buffer.slice_columns(0, half), buffer.slice_columns(half, 2 * half)};
    const Shape shape{buffer.rows(), half};
    return {{buffer.data(), shape}, {buffer.data() + shape.numel(), shape}};
  }
  GateUp take_gate_up(typename L::Frame& frame) const {
    return split(*weights_, tile_.kept ? kept_ : frame.template allocate<Compute>({tokens(), 2 * columns()}));
  }

  // The steps of a tile, or of a block of its columns: weights [c, H], [c, H] and [H, c], h and dh [t, c]. `column` is
  // the index of a block's first column in the whole h.

  Linear<L, 2> gate_and_up(const Weights& weights) const {
    return {*context_, {weights.gate, weights.up}, paths_->in, weights.in_paths, {.row = tile_.begin}};
  }

  void expand(const Weights& weights, Tensor<const Compute> x, const GateUp& g) const {
    gate_and_up(weights).template forward<Compute>(x, {g.gate, g.up});
  }
  /// Computes h = silu(gate) up and y (+)= down(h). h may alias gate.
  template <class C>
  void contract(const Weights& weights, const GateUp& g, Tensor<Compute> h, Tensor<C> y, Write write,
                std::int64_t column) const {
    context_->enqueue(device::SwiGlu<Compute>{.gate = g.gate, .up = g.up, .h = h});
    const Linear<L, 1> down(*context_, {weights.down}, paths_->down, weights.down_path, {tile_.begin, column});
    down.template forward<C>(h, {y}, write);
  }
  /// Writes the weights' gradients from dh, the gradient of h through down's weight. dx (+)= the gradient through gate
  /// and up. Gate and up are overwritten with their gradients, and dh with h.
  template <class C>
  void backward_matmuls(const Weights& weights, const Gradients& gradients, Tensor<const Compute> x, const GateUp& g,
                        Tensor<Compute> dh, Tensor<const Compute> dy, Tensor<C> dx, Write write,
                        std::int64_t column) const {
    {
      typename L::Frame frame(context_->arena);
      const LowRankPath<L, 1> path(*context_, paths_->down, weights.down_path, {tile_.begin, column});
      const auto du = path.backward(frame, {dy});  // [t, r]
      path.template backward_input<Compute>(du, dh);
      context_->enqueue(device::SwiGluBackward<Compute>{.gate = g.gate, .up = g.up, .dh = dh});
      project_backward_weight<L, 1>(*context_, {dy}, dh, {gradients.down});
      path.backward_weight(gradients.down_path, dh, {dy}, du);
      context_->progress();
    }
    const Linear<L, 2> in = gate_and_up(weights);
    in.backward_weight({gradients.gate, gradients.up}, x, {g.gate, g.up});
    in.template backward_input<C>(gradients.in_paths, x, {g.gate, g.up}, dx, write);
    context_->progress();
  }

  /// Calls body(weights, begin, end) for each block of columns [begin, end), with the weights of the block.
  template <class Body>
  void for_each_block(Body body) const {
    for (std::int64_t begin = 0; begin < columns(); begin += block_) {
      const std::int64_t end = std::min(begin + block_, columns());
      Weights part = *weights_;
      part.gate = part.gate.slice(begin, end);
      part.up = part.up.slice(begin, end);
      part.down = part.down.slice_columns(begin, end);
      for (std::size_t i = 0; i < paths_->in.on.size(); ++i)
        if (paths_->in.on[i]) part.in_paths.b[i] = part.in_paths.b[i].slice(begin, end);
      if (paths_->down.any()) part.down_path.a[0] = part.down_path.a[0].slice_columns(begin, end);
      body(part, begin, end);
    }
  }

  void forward_blocked(Tensor<const Compute> x, Tensor<Compute> y, Write write) const {
    typename L::Frame frame(context_->arena);
    const auto sum = frame.template allocate<float>(y.shape());  // [t, H]
    if (write == Write::accumulate) context_->enqueue(device::Copy<Compute, float>{.x = y, .y = sum});
    for_each_block([&](const Weights& weights, std::int64_t begin, std::int64_t end) {
      typename L::Frame inner(context_->arena);
      const GateUp g = split(weights, inner.template allocate<Compute>({tokens(), 2 * (end - begin)}));
      expand(weights, x, g);
      contract(weights, g, g.gate, sum, begin == 0 ? write : Write::accumulate, begin);
    });
    context_->enqueue(device::Copy<float, Compute>{.x = sum, .y = y});
  }

  void backward_blocked(const Gradients& gradients, Tensor<const Compute> x, Tensor<const Compute> dy,
                        Tensor<Compute> dx) const {
    typename L::Frame frame(context_->arena);
    const auto sum = frame.template allocate<float>(dx.shape());  // [t, H]
    for_each_block([&](const Weights& weights, std::int64_t begin, std::int64_t end) {
      typename L::Frame inner(context_->arena);
      // Separate `written` flags, so that every block's first write overwrites; gradients that all blocks add to stay
      // whole.
      std::array<bool, 6> written{};
      Gradients part = gradients;
      std::size_t i = 0;
      for_each_cut(part, [&](auto& gradient, auto cut) {
        written[i] = *gradient.written;
        gradient = (gradient.*cut)(begin, end, &written[i++]);
      });
      const auto dh = inner.template allocate<Compute>({tokens(), end - begin});  // [t, c]
      multiply_by_slice<L>(*context_, dy, weights.down, dh);
      const GateUp g = split(weights, inner.template allocate<Compute>({tokens(), 2 * (end - begin)}));
      expand(weights, x, g);
      backward_matmuls(weights, part, x, g, dh, dy, sum, begin == 0 ? Write::overwrite : Write::accumulate, begin);
    });
    Gradients whole = gradients;
    for_each_cut(whole, [](auto& gradient, auto) { *gradient.written = true; });
    context_->enqueue(device::Copy<float, Compute>{.x = sum, .y = dx});
  }

  /// Calls f(gradient, cut) for each gradient that is written one part per block; `cut` is the member function that
  /// returns a block's part. Skips absent parameters.
  template <class F>
  static void for_each_cut(Gradients& all, F f) {
    using View = GradientView<typename L::Accumulate>;
    for (View* const each : {&all.gate, &all.up, &all.in_paths.b[0], &all.in_paths.b[1]})
      if (each->written != nullptr) f(*each, &View::rows);
    for (View* const each : {&all.down, &all.down_path.a[0]})
      if (each->written != nullptr) f(*each, &View::columns);
  }

  Context<L>* context_;
  const SwiGluPaths* paths_;
  const Weights* weights_;
  tiling::Tile tile_;
  Tensor<Compute> kept_{};  // [t, 2 I], activations of a kept tile
  std::int64_t block_ = 0;  // number of columns of a block; 0 to compute all columns at once
};

}  // namespace fsdp::nn
