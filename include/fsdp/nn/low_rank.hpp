// SPDX-License-Identifier: Apache-2.0
/// @file
/// LoRA (Hu et al. 2021): linear layers y = x W^T, each with an additional low-rank path if the model has adapters, y
/// += s dropout(x) A^T B^T. A is [r, in] and B is [out, r]. B starts at zero, so that the path initially adds nothing.
/// W is frozen, since a model with adapter parameters trains nothing else (tessera/fsdp/module/units.hpp). A
/// LowRankPath computes the paths of N projections that read the same input: one matmul applies all their A, and they
/// share one dropout mask.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/operations.hpp>
#include <tessera/fsdp/nn/module.hpp>
#include <tessera/fsdp/nn/projection.hpp>

namespace fsdp::nn {

/// The low-rank paths of N projections that read the same input. These are run-time values: one instantiation works
/// with and without paths.
template <std::size_t N>
struct LowRank {
  std::int64_t rank = 0;     ///< r
  float scale = 1;           ///< s: alpha / r, or alpha / sqrt(r) (Kalajdzievski 2023)
  float dropout = 0;         ///< dropout rate, applied to x in training; 0 if there is no dropout
  std::uint64_t key = 0;     ///< key of the dropout's random numbers, different for each input of a model
  std::array<bool, N> on{};  ///< whether each projection has a path

  /// Whether at least one projection has a path.
  bool any() const { return std::find(on.begin(), on.end(), true) != on.end(); }
  /// Whether training applies dropout to the input, which requires a copy of the input.
  bool drops() const { return any() && dropout > 0; }
  /// Total number of columns of all paths: r for each path.
  std::int64_t columns() const { return rank * std::count(on.begin(), on.end(), true); }
};

/// A and B of each path.
template <std::size_t N, class V>
struct LowRankFields {
  std::array<V, N> a, b;  // [r, in], [out, r]; absent if the projection has no path
};

/// Names of A and B: string literals, as in Parameter.
struct LowRankNames {
  const char* a;
  const char* b;
};

/// Returns the parameters of the paths, absent for a projection without a path. `in` and `outs`: number of columns and
/// numbers of rows of the projections' weights.
template <std::size_t N>
LowRankFields<N, Parameter> low_rank_parameters(const LowRank<N>& paths, const std::array<LowRankNames, N>& names,
                                                std::int64_t in, const std::array<std::int64_t, N>& outs) {
  LowRankFields<N, Parameter> fields;
  fields.a.fill(Parameter::absent());
  fields.b.fill(Parameter::absent());
  bool follows = false;  // whether an earlier projection has an A
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

/// Position of a tile's first element in the input of the whole batch. Dropout depends on it.
struct Origin {
  std::int64_t row = 0;
  std::int64_t column = 0;
};

/// The computations of the paths, for a range of rows of a batch and of columns of x and y. Scratch memory comes from
/// the arena.
template <class L, std::size_t N>
class LowRankPath {
 public:
  using Compute = typename L::Compute;
  using Accumulate = typename L::Accumulate;
  using Weights = LowRankFields<N, typename L::Weight>;
  using Gradients = LowRankFields<N, GradientView<Accumulate>>;
  template <class T>
  using Each = std::array<Tensor<T>, N>;

  /// `weights` contains the weights of the computed columns; `at` is the position of x's first element.
  LowRankPath(Context<L>& context, const LowRank<N>& paths, const Weights& weights, const Origin& at = {})
      : context_(&context), paths_(paths), weights_(weights), at_(at) {}

  /// y_i += s dropout(x) A_i^T B_i^T: x [t, in], y_i [t, out_i]. The y_i of a projection without a path may be any
  /// tensor.
  template <class Y>
  void forward(Tensor<const Compute> x, const Each<Y>& y) const {
    if (!paths_.any()) return;
    typename L::Frame frame(context_->arena);
    const auto u = frame.template allocate<Compute>({x.rows(), paths_.columns()});  // [t, n r]
    {
      typename L::Frame inner(context_->arena);
      through_a(dropped(x, inner), u);
    }
    if (const Tensor<Y> all = beside(y); all.data() != nullptr)
      return multiply(*context_, u, device::transposed(diagonal_b(frame, y)), all, Write::accumulate);
    for_each([&](std::size_t i, std::int64_t begin, std::int64_t end) {
      multiply(*context_, u.slice_columns(begin, end), device::transposed(b(i)), y[i], Write::accumulate);
    });
  }

  /// Returns du = s [dy_0 B_0, dy_1 B_1, ...], [t, columns()], allocated in the frame, or an empty tensor if there is
  /// no path. backward_weight and backward_input read it.
  Tensor<Compute> backward(typename L::Frame& outer, const Each<const Compute>& dy) const {
    if (!paths_.any()) return {};
    const auto first = std::find(paths_.on.begin(), paths_.on.end(), true) - paths_.on.begin();
    const std::int64_t rows = dy[static_cast<std::size_t>(first)].rows();
    const auto du = outer.template allocate<Compute>({rows, paths_.columns()});  // [t, n r]
    if (const Tensor<const Compute> all = beside(dy); all.data() != nullptr) {
      typename L::Frame frame(context_->arena);
      multiply(*context_, all, diagonal_b(frame, dy), du);
    } else {
      for_each([&](std::size_t i, std::int64_t begin, std::int64_t end) {
        multiply(*context_, dy[i], b(i), du.slice_columns(begin, end));
      });
    }
    scale(du);
    return du;
  }
  /// dB_i (+)= dy_i^T u_i and dA_i (+)= du_i^T dropout(x).
  void backward_weight(const Gradients& gradients, Tensor<const Compute> x, const Each<const Compute>& dy,
                       Tensor<const Compute> du) const {
    if (!paths_.any()) return;
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
    if (!paths_.any()) return;
    if (!drops()) return through_a_backward(du, dx, Write::accumulate);
    typename L::Frame frame(context_->arena);
    const auto d = frame.template allocate<Compute>(dx.shape());  // [t, in]
    through_a_backward(du, d, Write::overwrite);
    context_->enqueue(device::Scale<Compute, X>{.x = d, .y = dx, .write = Write::accumulate, .dropout = dropout()});
  }

 private:
  Tensor<const Compute> a(std::size_t i) const { return weights_.a[i]; }
  Tensor<const Compute> b(std::size_t i) const { return weights_.b[i]; }
  /// Calls body(i, begin, end) for each projection i with a path; [begin, end) are its columns among the columns of all
  /// paths.
  template <class Body>
  void for_each(Body body) const {
    std::int64_t column = 0;
    for (std::size_t i = 0; i < N; ++i) {
      if (!paths_.on[i]) continue;
      body(i, column, column + paths_.rank);
      column += paths_.rank;
    }
    context_->progress();
  }

  /// Returns the outputs of all projections as one matrix if they form one contiguous matrix, else an empty tensor.
  /// oneDNN's matmul into a contiguous matrix is several times faster than into a slice of columns, even with the extra
  /// work on zeros.
  template <class T>
  static Tensor<T> beside(const Each<T>& outputs) {
    const Tensor<T> all = N > 1 ? side_by_side(outputs) : Tensor<T>();
    return all.contiguous() ? all : Tensor<T>();
  }
  /// Returns the block-diagonal matrix of all B, [rows of all projections, columns()]: each B is in the rows of its
  /// projection and the columns of its path.
  template <class T>
  Tensor<const Compute> diagonal_b(typename L::Frame& frame, const Each<T>& outputs) const {
    std::int64_t rows = 0;
    for (const Tensor<T>& output : outputs) rows += output.columns();
    const auto all = frame.template allocate<Compute>({rows, paths_.columns()});
    context_->enqueue(device::Fill<Compute>{.y = all});
    std::array<std::int64_t, N> first{};
    for (std::size_t i = 1; i < N; ++i) first[i] = first[i - 1] + outputs[i - 1].columns();
    for_each([&](std::size_t i, std::int64_t begin, std::int64_t end) {
      context_->enqueue(
          device::Copy<Compute>{.x = b(i), .y = all.slice(first[i], first[i] + b(i).rows()).slice_columns(begin, end)});
    });
    return all;
  }

  /// Depends on the kind of pass and not on the batch's noise, so that all batches need the same memory.
  bool drops() const { return paths_.drops() && context_->training; }
  device::Dropout dropout() const {
    return {.rate = context_->noise.key == 0 ? 0 : paths_.dropout,
            .key = context_->noise.key ^ paths_.key,
            .first_row = context_->noise.first_row + at_.row,
            .first_column = at_.column};
  }
  Tensor<const Compute> dropped(Tensor<const Compute> x, typename L::Frame& frame) const {
    if (!drops()) return x;
    const auto kept = frame.template allocate<Compute>(x.shape());  // [t, in]
    context_->enqueue(device::Scale<Compute>{.x = x, .y = kept, .dropout = dropout()});
    return kept;
  }
  void scale(Tensor<Compute> u) const {
    context_->enqueue(device::Scale<Compute>{.x = u, .y = u, .factor = paths_.scale});
  }
  /// u = s x [A_0^T, A_1^T, ...].
  void through_a(Tensor<const Compute> x, Tensor<Compute> u) const {
    const Tensor<const Compute> all = stacked_a();
    if (all.data() != nullptr)
      multiply(*context_, x, device::transposed(all), u);
    else
      for_each([&](std::size_t i, std::int64_t begin, std::int64_t end) {
        multiply(*context_, x, device::transposed(a(i)), u.slice_columns(begin, end));
      });
    scale(u);
  }
  /// dx (+)= du_0 A_0 + du_1 A_1 + ...
  template <class X>
  void through_a_backward(Tensor<const Compute> du, Tensor<X> dx, Write write) const {
    const Tensor<const Compute> all = stacked_a();
    if (all.data() != nullptr) return multiply(*context_, du, all, dx, write);
    for_each([&](std::size_t i, std::int64_t begin, std::int64_t end) {
      multiply(*context_, du.slice_columns(begin, end), a(i), dx, begin == 0 ? write : Write::accumulate);
    });
  }
  /// gradient (+)= left^T right.
  void add_product(const GradientView<Accumulate>& gradient, Tensor<const Compute> left,
                   Tensor<const Compute> right) const {
    if (!gradient.wanted()) return;
    multiply(*context_, device::transposed(left), right, gradient.tensor, gradient.next());
  }
  /// Returns the A of all paths as one matrix if they are adjacent in memory, else an empty tensor. A single A may be a
  /// slice of columns.
  Tensor<const Compute> stacked_a() const {
    Tensor<const Compute> first;
    const Compute* next = nullptr;
    std::int64_t rows = 0;
    for (std::size_t i = 0; i < N; ++i) {
      if (!paths_.on[i]) continue;
      const Tensor<const Compute> own = a(i);
      if (next == nullptr)
        first = own;
      else if (own.data() != next)
        return {};
      next = own.data() + own.numel();
      rows += own.rows();
    }
    return rows == first.rows() ? first : Tensor<const Compute>(first.data(), {rows, first.columns()});
  }

  Context<L>* context_;
  LowRank<N> paths_;
  Weights weights_;
  Origin at_;
};

/// N linear layers over some rows of a batch. Weights may be slices: some rows of W_i and B_i, or for N = 1 some
/// columns of W and A.
template <class L, std::size_t N>
class Linear {
 public:
  using Compute = typename L::Compute;
  using Accumulate = typename L::Accumulate;
  using Path = LowRankPath<L, N>;
  template <class T>
  using Each = std::array<Tensor<T>, N>;
  using Gradients = std::array<GradientView<Accumulate>, N>;

  /// The context must outlive it. `at`: position of x's first element in the input of the whole batch.
  Linear(Context<L>& context, const Each<const Compute>& weights, const LowRank<N>& paths,
         const typename Path::Weights& path_weights, const Origin& at = {})
      : context_(&context), weights_(weights), path_(context, paths, path_weights, at) {}

  /// y_i (+)= layer i of x: x [t, in], y_i [t, out_i].
  template <class Y>
  void forward(Tensor<const Compute> x, const Each<Y>& y, Write write = Write::overwrite) const {
    project<L, N>(*context_, x, weights_, y, write);
    path_.template forward<Y>(x, y);
    context_->progress();
  }
  /// dW_i (+)= dy_i^T x.
  void backward_weight(const Gradients& gradients, Tensor<const Compute> x, const Each<const Compute>& dy) const {
    project_backward_weight<L, N>(*context_, dy, x, gradients);
    context_->progress();
  }
  /// dx (+)= the layers' input gradient. Writes the paths' gradients first, so that dx may alias x.
  template <class X>
  void backward_input(const typename Path::Gradients& gradients, Tensor<const Compute> x, const Each<const Compute>& dy,
                      Tensor<X> dx, Write write = Write::overwrite) const {
    typename L::Frame frame(context_->arena);
    const auto du = path_.backward(frame, dy);  // [t, path columns]
    path_.backward_weight(gradients, x, dy, du);
    const bool direct = N > 1 || weights_[0].contiguous() || std::is_same_v<Compute, float>;
    if (direct || write == Write::accumulate)
      project_backward_input<L, N>(*context_, dy, weights_, dx, write);
    else
      multiply_by_slice<L>(*context_, dy[0], weights_[0], dx);
    path_.template backward_input<X>(du, dx);
  }

 private:
  Context<L>* context_;
  Each<const Compute> weights_;
  Path path_;
};

}  // namespace fsdp::nn
