// SPDX-License-Identifier: Apache-2.0
/// @file
/// Linear layers that read the same input, each with a low-rank path in addition to its matmul if the model has
/// adapters: y_i = x W_i^T + s dropout(x) A_i^T B_i^T.
#pragma once

#include <array>
#include <cstddef>
#include <type_traits>

#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/operations.hpp>
#include <tessera/fsdp/nn/low_rank.hpp>
#include <tessera/fsdp/nn/module.hpp>
#include <tessera/fsdp/nn/projection.hpp>

namespace fsdp::nn {

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
