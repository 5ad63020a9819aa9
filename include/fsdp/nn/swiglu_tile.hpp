// SPDX-License-Identifier: Apache-2.0
/// @file
/// One tile of a SwiGLU MLP: what its matmuls are, which memory they take, and what a tiling policy is told of it.
///
/// Backward runs in place on three tile buffers: gate, up and dh become dgate, dup and h (DESIGN, "Tiling"). A tile may
/// be computed in blocks of intermediate columns as well; then what is summed over blocks is summed in float.
#pragma once

#include <array>
#include <cstdint>

#include <fsdp/core/tensor.hpp>
#include <fsdp/nn/module.hpp>
#include <fsdp/nn/projection.hpp>
#include <tiling/policies.hpp>

namespace fsdp::nn {

template <class V>
struct SwiGluFields {
  V gate, up, down;  // [I, H], [I, H], [H, I]
};

/// A tile's input, weights, memory, and how to compute with them; SwiGluMlp and ResidualMlp are loops over it.
template <class L>
class SwiGluTile {
 public:
  using Device = typename L::Device;
  using Compute = typename L::Compute;
  using Weights = SwiGluFields<Tensor<const Compute>>;
  using Gradients = SwiGluFields<GradientView<typename L::Accumulate>>;

  /// A kept token costs gate and up; a tile costs gate, up and h, and `extra_columns` of the unit's own.
  static tiling::Problem problem(std::int64_t tokens, std::int64_t hidden, std::int64_t intermediate,
                                 std::int64_t extra_columns, std::int64_t repeats) {
    const auto size = static_cast<std::int64_t>(sizeof(Compute));
    const auto wide = static_cast<std::int64_t>(sizeof(typename L::Accumulate));
    const std::int64_t weight = hidden * intermediate;
    return {.tokens = tokens,
            .columns = intermediate,
            .kept_bytes_per_token = 2 * intermediate * size,
            .tile_bytes_per_token = extra_columns * size,
            .tile_bytes_per_token_column = 3 * size,
            .blocked_bytes_per_token = hidden * static_cast<std::int64_t>(sizeof(float)),
            .recomputed_flops_per_token = 4 * weight,
            .traffic_per_tile = 3 * weight * (3 * size + 2 * wide),  // forward, again, dx; gradients read and written
            .repeats = repeats};
  }

  /// Gate and up of the kept tiles, one after the other.
  static Tensor<Compute> save_kept(Context<L>& context, const tiling::TilePlan& plan, std::int64_t intermediate) {
    return context.template save<Compute>({plan.kept_tokens(), 2 * intermediate});  // [kept tokens, 2 I]
  }

  /// Calls body(tile, ...) for each of the plan's tiles, in a frame of its own. `kept` is what save_kept gave.
  template <class Body>
  static void for_each(Context<L>& context, const tiling::TilePlan& plan, const Weights& weights, Tensor<Compute> kept,
                       Body body) {
    std::int64_t row = 0;
    for (const tiling::Tile& tile : plan.tiles) {
      typename L::Frame frame(context.arena);
      SwiGluTile self(context, weights, tile);
      if (tile.kept) {
        self.gate_up_ = kept.slice(row, row + tile.tokens());
        row += tile.tokens();
      } else {
        self.block_ = plan.columns_per_block;
      }
      body(self, frame);
    }
  }

  /// The tile's rows of a tensor of all tokens.
  template <class T>
  Tensor<T> rows(Tensor<T> all) const {
    return all.slice(tile_.begin, tile_.end);
  }

  /// y (+)= down(silu(gate(x)) up(x)).
  void forward(Tensor<const Compute> x, Tensor<Compute> y, Write write) const {
    if (block_ > 0) return forward_blocked(x, y, write);
    typename L::Frame frame(context_->arena);
    const auto gate_up = take_gate_up(frame);                                                             // [t, 2 I]
    const auto h = tile_.kept ? frame.template allocate<Compute>({tokens(), columns()}) : gate(gate_up);  // [t, I]
    expand(*weights_, x, gate_up);
    contract(*weights_, gate_up, h, y, write);
  }

  /// dx = gradient of x, written after x and dy were last read: dx may be either.
  void backward(const Gradients& gradients, Tensor<const Compute> x, Tensor<const Compute> dy,
                Tensor<Compute> dx) const {
    if (block_ > 0) return backward_blocked(gradients, x, dy, dx);
    typename L::Frame frame(context_->arena);
    const auto gate_up = take_gate_up(frame);                                 // [t, 2 I]
    const auto dh = frame.template allocate<Compute>({tokens(), columns()});  // [t, I]
    if (!tile_.kept) expand(*weights_, x, gate_up);
    backward_weights(*weights_, gradients, x, gate_up, dh, dy);
    backward_input(*weights_, gate_up, dx, Write::overwrite);
  }

 private:
  SwiGluTile(Context<L>& context, const Weights& weights, const tiling::Tile& tile)
      : context_(&context), weights_(&weights), tile_(tile) {}

  std::int64_t tokens() const { return tile_.tokens(); }
  std::int64_t columns() const { return weights_->gate.rows(); }
  Tensor<Compute> take_gate_up(typename L::Frame& frame) const {
    return tile_.kept ? gate_up_ : frame.template allocate<Compute>({tokens(), 2 * columns()});
  }
  static Tensor<Compute> gate(Tensor<Compute> gate_up) { return gate_up.slice_columns(0, gate_up.columns() / 2); }
  static Tensor<Compute> up(Tensor<Compute> gate_up) {
    return gate_up.slice_columns(gate_up.columns() / 2, gate_up.columns());
  }

  // The parts of a tile, or of a block of its columns: weights [c, H], [c, H] and [H, c], gate_up [t, 2 c], h [t, c].

  /// gate_up = [gate(x), up(x)].
  void expand(const Weights& weights, Tensor<const Compute> x, Tensor<Compute> gate_up) const {
    project<L, 2>(*context_, x, {weights.gate, weights.up}, gate_up);
    context_->progress();
  }
  /// y (+)= down(h), where h is made of gate_up and may be its gate half.
  template <class C>
  void contract(const Weights& weights, Tensor<Compute> gate_up, Tensor<Compute> h, Tensor<C> y, Write write) const {
    Device::template swiglu<Compute>(context_->stream, gate(gate_up), up(gate_up), h);
    Device::template matmul<Compute, C>(context_->stream, h, device::transposed(weights.down), y, write);
    context_->progress();
  }
  /// gate_up becomes its gradient, dh becomes h.
  void backward_weights(const Weights& weights, const Gradients& gradients, Tensor<const Compute> x,
                        Tensor<Compute> gate_up, Tensor<Compute> dh, Tensor<const Compute> dy) const {
    Device::template matmul<Compute, Compute>(context_->stream, dy, weights.down, dh);
    context_->progress();
    Device::template swiglu_backward<Compute>(context_->stream, gate(gate_up), up(gate_up), dh);
    project_backward_weight<L, 1>(*context_, dy, dh, {gradients.down});
    context_->progress();
    project_backward_weight<L, 2>(*context_, gate_up, x, {gradients.gate, gradients.up});
    context_->progress();
  }
  template <class C>
  void backward_input(const Weights& weights, Tensor<const Compute> gate_up, Tensor<C> dx, Write write) const {
    project_backward_input<L, 2>(*context_, gate_up, {weights.gate, weights.up}, dx, write);
    context_->progress();
  }

  /// Calls body(first column, one past the last) for each block of columns.
  template <class Body>
  void for_each_block(Body body) const {
    for (std::int64_t begin = 0; begin < columns(); begin += block_) body(begin, std::min(begin + block_, columns()));
  }
  Weights block_of(std::int64_t begin, std::int64_t end) const {
    return {weights_->gate.slice(begin, end), weights_->up.slice(begin, end), weights_->down.slice_columns(begin, end)};
  }

  void forward_blocked(Tensor<const Compute> x, Tensor<Compute> y, Write write) const {
    typename L::Frame frame(context_->arena);
    const auto sum = frame.template allocate<float>(y.shape());  // [t, H]
    if (write == Write::accumulate) Device::template copy<Compute, float>(context_->stream, y, sum);
    for_each_block([&](std::int64_t begin, std::int64_t end) {
      typename L::Frame inner(context_->arena);
      const auto gate_up = inner.template allocate<Compute>({tokens(), 2 * (end - begin)});  // [t, 2 c]
      const Weights weights = block_of(begin, end);
      expand(weights, x, gate_up);
      contract(weights, gate_up, gate(gate_up), sum, begin == 0 ? write : Write::accumulate);
    });
    Device::template copy<float, Compute>(context_->stream, sum, y);
  }

  void backward_blocked(const Gradients& gradients, Tensor<const Compute> x, Tensor<const Compute> dy,
                        Tensor<Compute> dx) const {
    typename L::Frame frame(context_->arena);
    const auto sum = frame.template allocate<float>(dx.shape());  // [t, H]
    const std::array<bool, 3> written = {*gradients.gate.written, *gradients.up.written, *gradients.down.written};
    for_each_block([&](std::int64_t begin, std::int64_t end) {
      typename L::Frame inner(context_->arena);
      const auto gate_up = inner.template allocate<Compute>({tokens(), 2 * (end - begin)});  // [t, 2 c]
      const auto dh = inner.template allocate<Compute>({tokens(), end - begin});             // [t, c]
      const Weights weights = block_of(begin, end);
      std::array<bool, 3> first = written;  // every block writes its own part of each gradient
      const Gradients part{{gradients.gate.tensor.slice(begin, end), &first[0]},
                           {gradients.up.tensor.slice(begin, end), &first[1]},
                           {gradients.down.tensor.slice_columns(begin, end), &first[2]}};
      expand(weights, x, gate_up);
      backward_weights(weights, part, x, gate_up, dh, dy);
      backward_input(weights, gate_up, sum, begin == 0 ? Write::overwrite : Write::accumulate);
    });
    *gradients.gate.written = *gradients.up.written = *gradients.down.written = true;
    Device::template copy<float, Compute>(context_->stream, sum, dx);
  }

  Context<L>* context_;
  const Weights* weights_;
  tiling::Tile tile_;
  Tensor<Compute> gate_up_{};  // [t, 2 I], of a kept tile
  std::int64_t block_ = 0;     // columns at a time; 0: all
};

}  // namespace fsdp::nn
