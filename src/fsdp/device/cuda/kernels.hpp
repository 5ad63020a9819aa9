// SPDX-License-Identifier: Apache-2.0
/// @file
/// Functions that enqueue the kernels of one operation each, on checked arguments. Shapes are those of
/// device/operations/ and device/compute/.
///
/// T is float, bf16 or f16. The caller provides scratch, sized by scratch.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/compute/attention.hpp>
#include <tessera/fsdp/device/compute/cached_attention.hpp>
#include <tessera/fsdp/device/compute/muon.hpp>
#include <tessera/fsdp/device/compute/rope.hpp>
#include <tessera/fsdp/device/operations/adamw.hpp>
#include <tessera/fsdp/device/operations/elements.hpp>
#include <tessera/fsdp/device/operations/optimizer.hpp>
#include <tessera/fsdp/device/operations/sgd.hpp>

#include "../optimizer_step.hpp"

struct CUstream_st;  // what a cudaStream_t points to

namespace fsdp::device::cuda {

/// The stream that a kernel runs on, and whether it is the plain variant.
struct Lane {
  CUstream_st* stream = nullptr;
  bool plain = false;
};

/// Throws if the last kernel launch failed.
void require_launched(const char* kernel);

// elements.cu
template <class T>
void add(Lane, Tensor<const T> x, Tensor<T> y);
template <class X, class Y>
void copy(Lane, Tensor<const X> x, Tensor<Y> y);
template <class T>
void fill(Lane, Tensor<T> y, float value);
template <class X, class Y>
void scale(Lane, Tensor<const X> x, Tensor<Y> y, float factor, bool accumulate, const Dropout&);
template <class T>
void swiglu(Lane, Tensor<const T> gate, Tensor<const T> up, Tensor<T> h);
template <class T>
void swiglu_backward(Lane, Tensor<T> gate, Tensor<T> up, Tensor<T> dh);
/// `factors` is scratch for the bias corrections, which are computed once instead of by every thread. `model` may be
/// empty.
template <class Model>
void adamw(Lane, const AdamWRules&, const StepDecision*, Tensor<float> main, Tensor<float> first_moment,
           Tensor<float> second_moment, Tensor<const float> gradient, Tensor<Model> model, AdamWFactors* factors);

// steps.cu
template <class Model>
void sgd(Lane, const SgdStep<Model>&);
void momentum_direction(Lane, const MomentumDirection&);
template <class T>
void normalized(Lane, const Normalized<T>&);
template <class T>
void combination(Lane, const Combination<T>&);
template <class T>
void direction_step(Lane, const DirectionStep<T>&);

// rope.cu
void rotary_table(Lane, float theta, const RotaryScaling&, Tensor<float> table, Tensor<const std::int32_t> positions);
/// Sets first[t] to the first row of token t's document. Reads `documents` before it returns.
void first_rows(Lane, CumulativeLengths documents, Tensor<std::int32_t> first);
/// `first` may be empty: then every table.rows() rows are one document.
template <class T>
void rope(Lane, Tensor<T> x, Tensor<const float> table, Rotation rotation, Tensor<const std::int32_t> first);

// bias.cu
template <class T>
void add_bias(Lane, Tensor<const T> bias, Tensor<T> y);
/// `parts` [row_parts(rows), columns] is scratch.
template <class T>
void bias_backward(Lane, Tensor<const T> dy, Tensor<float> dbias, Write write, Tensor<float> parts);

// norm.cu; rows of one or several heads, each as wide as w
template <class T>
void rms_norm(Lane, Tensor<const T> x, Tensor<const T> w, float eps, Tensor<T> y, Tensor<float> rstd);
/// `parts` [row_parts(rows * heads), columns of w] is scratch, empty without dw.
template <class T>
void rms_norm_backward(Lane, Tensor<const T> x, Tensor<const T> w, Tensor<const float> rstd, Tensor<const T> dy,
                       Tensor<T> dx, Write dx_write, Tensor<float> dw, Write dw_write, Tensor<float> parts);

// embedding.cu
template <class T>
void embedding(Lane, Tensor<const T> table, Tensor<const std::int32_t> tokens, Tensor<T> out);
template <class T>
void embedding_backward(Lane, Tensor<const std::int32_t> tokens, Tensor<const T> dy, Tensor<float> dtable, Write write);

// cross_entropy.cu
/// Writes every row's loss to `losses` [t]. Does not change the logits.
template <class T>
void cross_entropy_losses(Lane, Tensor<const T> logits, Tensor<const std::int32_t> targets, Tensor<double> losses);
/// The same, and replaces the logits by their gradient.
template <class T>
void cross_entropy(Lane, Tensor<T> logits, Tensor<const std::int32_t> targets, float scale, Tensor<double> losses);
template <class T>
void cross_entropy_fold(Lane, Tensor<const T> logits, std::int64_t first, Tensor<const std::int32_t> targets,
                        Tensor<double> state);
template <class T>
void cross_entropy_gradient(Lane, Tensor<T> logits, std::int64_t first, Tensor<const std::int32_t> targets, float scale,
                            Tensor<const double> state);

// sums.cu
/// sum[0] += values[0] + values[1] + ..., in a fixed order.
void add_up(Lane, Tensor<const double> values, Tensor<double> sum);
/// The same for the losses of the states [t, 3].
void add_up_states(Lane, Tensor<const double> state, Tensor<double> sum);
/// Computes one sum per sum_chunk elements.
void squares(Lane, Tensor<const float> x, Tensor<double> partials);
/// `partials` is scratch, one for each chunk.
void largest_magnitude(Lane, const LargestMagnitude&, Tensor<std::int64_t> partials);
void fixed_point_squares(Lane, const FixedPointSquares&, Tensor<FixedPointSum> partials);
inline constexpr std::size_t most_parts = 256;
void sum_in_order(Lane, std::span<const std::byte* const> parts, DType stored, DType wire, std::int64_t count,
                  Write write, float* sum);
void round(Lane, const float* from, DType wire, std::int64_t count, std::byte* to);
void decide_step(Lane, const DecideStep&);

// digest.cu
/// sum[0] += the digest of x (AddDigest); `partials` is scratch, a number for each chunk.
template <class T>
void digest(Lane, Tensor<const T> x, std::int64_t begin, std::uint64_t key, Tensor<std::int64_t> partials,
            Tensor<std::int64_t> sum);

// attention_forward.cu, attention_backward.cu, attention_backward_keys.cu; `first` as for rope
template <class T>
void attention(Lane, const AttentionShape&, Tensor<const T> q, Tensor<const T> k, Tensor<const T> v, Tensor<T> out,
               Tensor<float> lse, Tensor<const std::int32_t> first);
/// The tensors of attention's backward.
template <class T>
struct AttentionBackward {
  Tensor<const T> q, k, v, out, dout;
  Tensor<const float> lse;
  Tensor<T> dq, dk, dv;
  Tensor<const std::int32_t> first;
  Tensor<float> products;  ///< scratch [sequences * heads, S]: dout . out
};
template <class T>
void attention_backward(Lane, const AttentionShape&, const AttentionBackward<T>&);

// attention_cached.cu
template <class T>
void keep_heads(Lane, const KeepHeads<T>&);
template <class T>
void cached_attention(Lane, const CachedAttention<T>&);

}  // namespace fsdp::device::cuda
