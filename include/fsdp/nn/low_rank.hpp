// SPDX-License-Identifier: Apache-2.0
/// @file
/// LoRA (Hu et al. 2021): a linear layer y = x W^T with a path of low rank beside it, y += s dropout(x) A^T B^T.
///
/// A is [r, in] and B is [out, r]; B begins at zero, so that the path adds nothing at first. W is frozen, by being no
/// adapter where others are (module/units.hpp). A module gives its projections such paths through LowRankPath: N of
/// them where N projections read the same input, so that their A are one matmul and see the same dropout.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include <fsdp/core/tensor.hpp>
#include <fsdp/device/operations.hpp>
#include <fsdp/nn/module.hpp>

namespace fsdp::nn {

/// The paths of N projections that read one input; by value, so that one program trains with them and without.
template <std::size_t N>
struct LowRank {
  std::int64_t rank = 0;     ///< r
  float scale = 1;           ///< s: alpha / r, or alpha / sqrt(r) (Kalajdzievski 2023)
  float dropout = 0;         ///< of x in training; 0: none
  std::uint64_t key = 0;     ///< of the dropout: each input of a model has another
  std::array<bool, N> on{};  ///< which of the projections have one

  /// Whether there is a path at all.
  bool any() const { return std::find(on.begin(), on.end(), true) != on.end(); }
  /// Columns of all paths beside each other.
  std::int64_t columns() const { return rank * std::count(on.begin(), on.end(), true); }
};

/// A and B of each path.
template <std::size_t N, class V>
struct LowRankFields {
  std::array<V, N> a, b;  // [r, in], [out, r]; absent where a projection has none
};

/// Literals, as in Parameter.
struct LowRankNames {
  const char* a;
  const char* b;
};

/// `outs`: rows of each projection's weight.
template <std::size_t N>
LowRankFields<N, Parameter> low_rank_parameters(const LowRank<N>& paths, const std::array<LowRankNames, N>& names,
                                                std::int64_t in, const std::array<std::int64_t, N>& outs) {
  LowRankFields<N, Parameter> fields;
  fields.a.fill(Parameter::absent());
  fields.b.fill(Parameter::absent());
  bool follows = false;  // another A
  for (std::size_t i = 0; i < N; ++i) {
    if (!paths.on[i]) continue;
    fields.a[i] = {.name = names[i].a,
                   .shape = {paths.rank, in},
                   .initial = Initial::normal(1 / std::sqrt(3 * static_cast<double>(in))),
                   .joins_previous = follows,
                   .adapter = true};
    fields.b[i] = {.name = names[i].b, .shape = {outs[i], paths.rank}, .initial = Initial::zeros, .adapter = true};
    follows = true;
  }
  return fields;
}

/// The paths over some rows of a batch, and some columns of x and y. Memory is the arena's scratch.
template <class L, std::size_t N>
class LowRankPath {
 public:
  using Compute = typename L::Compute;
  using Accumulate = typename L::Accumulate;
  using Weights = LowRankFields<N, Tensor<const Compute>>;
  using Gradients = LowRankFields<N, GradientView<Accumulate>>;
  template <class T>
  using Each = std::array<Tensor<T>, N>;

  /// `weights` of the columns that are computed; rows and columns of x are its part of the batch from these on.
  LowRankPath(Context<L>& context, const LowRank<N>& paths, const Weights& weights, std::int64_t first_row = 0,
              std::int64_t first_column = 0)
      : context_(&context), paths_(&paths), weights_(&weights), first_row_(first_row), first_column_(first_column) {}

  /// y_i += s dropout(x) A_i^T B_i^T: x [t, in], y_i [t, out_i], or where there is no path anything.
  template <class Y>
  void forward(Tensor<const Compute> x, const Each<Y>& y) const {
    if (!paths_->any()) return;
    typename L::Frame frame(context_->arena);
    const auto u = frame.template allocate<Compute>({x.rows(), paths_->columns()});  // [t, n r]
    make_u(x, u);
    if (const Tensor<Y> all = beside(y); all.data() != nullptr)
      return enqueue(device::Matmul<Compute, Y>{
          .a = u, .b = device::transposed(diagonal_b(frame, y)), .c = all, .write = Write::accumulate});
    for_each([&](std::size_t i, std::int64_t begin, std::int64_t end) {
      enqueue(device::Matmul<Compute, Y>{.a = u.slice_columns(begin, end),
                                         .b = device::transposed(weights_->b[i]),
                                         .c = y[i],
                                         .write = Write::accumulate});
    });
  }

  /// du = s [dy_0 B_0, dy_1 B_1, ...]: du [t, columns()], which the two below read.
  void backward(const Each<const Compute>& dy, Tensor<Compute> du) const {
    if (!paths_->any()) return;
    if (const Tensor<const Compute> all = beside(dy); all.data() != nullptr) {
      typename L::Frame frame(context_->arena);
      enqueue(device::Matmul<Compute>{.a = all, .b = diagonal_b(frame, dy), .c = du});
    } else {
      for_each([&](std::size_t i, std::int64_t begin, std::int64_t end) {
        enqueue(device::Matmul<Compute>{.a = dy[i], .b = weights_->b[i], .c = du.slice_columns(begin, end)});
      });
    }
    scale(du);
  }
  /// dB_i (+)= dy_i^T u_i and dA_i (+)= du_i^T dropout(x).
  void backward_weight(const Gradients& gradients, Tensor<const Compute> x, const Each<const Compute>& dy,
                       Tensor<const Compute> du) const {
    if (!paths_->any()) return;
    typename L::Frame frame(context_->arena);
    const auto u = frame.template allocate<Compute>(du.shape());  // [t, n r]
    const auto seen = dropped(x, frame);                          // [t, in]
    through_a(seen, u);
    for_each([&](std::size_t i, std::int64_t begin, std::int64_t end) {
      add_product(gradients.b[i], dy[i], u.slice_columns(begin, end));
      add_product(gradients.a[i], du.slice_columns(begin, end), seen);
    });
  }
  /// dx += dropout(du A): dx [t, in].
  template <class X>
  void backward_input(Tensor<const Compute> du, Tensor<X> dx) const {
    if (!paths_->any()) return;
    if (!drops()) return through_a_backward(du, dx, Write::accumulate);
    typename L::Frame frame(context_->arena);
    const auto d = frame.template allocate<Compute>(dx.shape());  // [t, in]
    through_a_backward(du, d, Write::overwrite);
    enqueue(device::Scale<Compute, X>{.x = d, .y = dx, .write = Write::accumulate, .dropout = dropout()});
  }

 private:
  template <class Operation>
  void enqueue(const Operation& operation) const {
    device::enqueue(context_->stream, operation);
  }
  /// Calls body(projection, its first column among those of all paths, one past the last).
  template <class Body>
  void for_each(Body body) const {
    std::int64_t column = 0;
    for (std::size_t i = 0; i < N; ++i) {
      if (!paths_->on[i]) continue;
      body(i, column, column + paths_->rank);
      column += paths_->rank;
    }
    context_->progress();
  }

  /// The outputs of all projections as one matrix, where they are all there is of its columns; else nothing. oneDNN's
  /// matmul into columns with gaps is several times slower than one without, zeros of the other projections included.
  template <class T>
  static Tensor<T> beside(const Each<T>& outputs) {
    std::int64_t columns = 0;
    for (const Tensor<T>& output : outputs) {
      if (N == 1 || output.data() != outputs[0].data() + columns) return {};
      columns += output.columns();
    }
    const std::int64_t rows = outputs[0].rows();
    return rows <= 1 || outputs[0].row_stride() == columns ? Tensor<T>(outputs[0].data(), {rows, columns})
                                                           : Tensor<T>();
  }
  /// B of all paths, each in its projection's rows and its own columns: [rows of all projections, columns()].
  template <class T>
  Tensor<const Compute> diagonal_b(typename L::Frame& frame, const Each<T>& outputs) const {
    std::int64_t rows = 0;
    for (const Tensor<T>& output : outputs) rows += output.columns();
    const auto b = frame.template allocate<Compute>({rows, paths_->columns()});
    enqueue(device::Fill<Compute>{.y = b});
    std::array<std::int64_t, N> first{};
    for (std::size_t i = 1; i < N; ++i) first[i] = first[i - 1] + outputs[i - 1].columns();
    for_each([&](std::size_t i, std::int64_t begin, std::int64_t end) {
      enqueue(device::Copy<Compute>{
          .x = weights_->b[i], .y = b.slice(first[i], first[i] + weights_->b[i].rows()).slice_columns(begin, end)});
    });
    return b;
  }

  bool drops() const { return paths_->dropout > 0 && context_->noise.key != 0; }
  device::Dropout dropout() const {
    return {.rate = paths_->dropout,
            .key = context_->noise.key ^ paths_->key,
            .first_row = context_->noise.first_row + first_row_,
            .first_column = first_column_};
  }
  Tensor<const Compute> dropped(Tensor<const Compute> x, typename L::Frame& frame) const {
    if (!drops()) return x;
    const auto kept = frame.template allocate<Compute>(x.shape());  // [t, in]
    enqueue(device::Scale<Compute>{.x = x, .y = kept, .dropout = dropout()});
    return kept;
  }
  void scale(Tensor<Compute> u) const { enqueue(device::Scale<Compute>{.x = u, .y = u, .factor = paths_->scale}); }
  /// u = s dropout(x) [A_0^T, A_1^T, ...].
  void make_u(Tensor<const Compute> x, Tensor<Compute> u) const {
    typename L::Frame frame(context_->arena);
    through_a(dropped(x, frame), u);
  }
  void through_a(Tensor<const Compute> x, Tensor<Compute> u) const {
    const Tensor<const Compute> all = stacked_a();
    if (all.data() != nullptr)
      enqueue(device::Matmul<Compute>{.a = x, .b = device::transposed(all), .c = u});
    else
      for_each([&](std::size_t i, std::int64_t begin, std::int64_t end) {
        enqueue(
            device::Matmul<Compute>{.a = x, .b = device::transposed(weights_->a[i]), .c = u.slice_columns(begin, end)});
      });
    scale(u);
  }
  /// dx (+)= du_0 A_0 + du_1 A_1 + ...
  template <class X>
  void through_a_backward(Tensor<const Compute> du, Tensor<X> dx, Write write) const {
    const Tensor<const Compute> all = stacked_a();
    if (all.data() != nullptr) return enqueue(device::Matmul<Compute, X>{.a = du, .b = all, .c = dx, .write = write});
    for_each([&](std::size_t i, std::int64_t begin, std::int64_t end) {
      enqueue(device::Matmul<Compute, X>{.a = du.slice_columns(begin, end),
                                         .b = weights_->a[i],
                                         .c = dx,
                                         .write = begin == 0 ? write : Write::accumulate});
    });
  }
  /// gradient (+)= left^T right.
  void add_product(const GradientView<Accumulate>& gradient, Tensor<const Compute> left,
                   Tensor<const Compute> right) const {
    if (!gradient.wanted()) return;
    enqueue(device::Matmul<Compute, Accumulate>{
        .a = device::transposed(left), .b = right, .c = gradient.tensor, .write = gradient.next()});
  }
  /// The A of all paths as one matrix, where they follow each other in memory; else nothing. One alone may be a slice
  /// of columns.
  Tensor<const Compute> stacked_a() const {
    const Tensor<const Compute>* first = nullptr;
    const Compute* next = nullptr;
    std::int64_t rows = 0;
    for (std::size_t i = 0; i < N; ++i) {
      if (!paths_->on[i]) continue;
      const Tensor<const Compute>& a = weights_->a[i];
      if (first == nullptr)
        first = &a;
      else if (a.data() != next)
        return {};
      next = a.data() + a.numel();
      rows += a.rows();
    }
    return rows == first->rows() ? *first : Tensor<const Compute>(first->data(), {rows, first->columns()});
  }

  Context<L>* context_;
  const LowRank<N>* paths_;
  const Weights* weights_;
  std::int64_t first_row_, first_column_;
};

}  // namespace fsdp::nn
