// SPDX-License-Identifier: Apache-2.0
/// @file
/// References of all modules in plain float64 code, one number at a time, and gradients by central differences, or by
/// the chain rule for sizes at which central differences are too slow.
///
/// Matrices are flat and row-major. Weights are in the order of the modules' parameters. Nothing here is tiled.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <tessera/fsdp/core/error.hpp>

#include "device/float64.hpp"

namespace fsdp::nn::reference {

using device::reference::norm_reference;
using device::reference::plus;
using device::reference::Values;
using ValueList = std::vector<Values>;

/// Sizes of a problem; each module uses those that apply to it.
struct Sizes {
  std::int64_t sequences = 1;
  std::int64_t length = 1;
  std::int64_t hidden = 1;
  std::int64_t intermediate = 1;
  std::int64_t heads = 1;
  std::int64_t kv_heads = 1;
  std::int64_t head_dim = 2;
  std::int64_t vocabulary = 1;
  float eps = 1e-2f;
  float theta = 100;
  std::vector<std::int64_t> documents = {};  ///< cumulative lengths; empty if each sequence is one document
  std::int64_t window = 0;
  bool biases = false, head_norms = false;
  std::int64_t rank = 0;          ///< rank of the low-rank paths (LoRA); 0 for no paths
  float scale = 1;                ///< factor on the output of the paths
  float dropout = 0;              ///< dropout rate on the input of the paths
  std::string paths = "qkvogud";  ///< projections that have a path, one letter each

  std::int64_t tokens() const { return sequences * length; }
  std::string in_words() const {
    return message(sequences, " x ", length, " tokens, hidden ", hidden, ", intermediate ", intermediate);
  }
  bool has_path(char projection) const { return rank > 0 && paths.find(projection) != std::string::npos; }
  /// The first token of a token's document.
  std::int64_t first(std::int64_t token) const {
    return device::reference::first_of_document(documents, length, token);
  }
  /// The first token that a token attends to.
  std::int64_t first_seen(std::int64_t token) const {
    return window > 0 ? std::max(first(token), token - window + 1) : first(token);
  }
};

inline std::size_t at(std::int64_t row, std::int64_t columns, std::int64_t column) {
  return static_cast<std::size_t>(row * columns + column);
}

inline std::int64_t count(const Values& values) { return static_cast<std::int64_t>(values.size()); }

/// y = x W^T, where W is [out, in].
Values linear(const Values& x, const Values& w, std::int64_t in);

/// y = x W^T + s (x A^T) B^T, or x W^T if A is empty.
Values linear(const Sizes& sizes, const Values& x, const Values& w, std::int64_t in, const Values& a, const Values& b);

/// Weights: gate, up, down, then A of gate and up, B of both, and A and B of down; A and B are empty without a path.
Values swiglu_mlp(const Sizes& sizes, const ValueList& w, const Values& x);

/// The number of weights of ResidualAttention.
inline constexpr std::size_t attention_weights = 18;

/// Weights: norm, q, k, v, out, then the biases of q, k and v, the head norms, A of q, k and v, B of q, k and v, and A
/// and B of out; absent ones are empty.
Values residual_attention(const Sizes& sizes, const ValueList& w, const Values& x);

/// Weights: norm, then the weights of the MLP.
Values residual_mlp(const Sizes& sizes, const ValueList& w, const Values& x);

/// Weights: the weights of attention, then the weights of the MLP.
Values transformer_block(const Sizes& sizes, const ValueList& w, const Values& x);

Values embedding(const Sizes& sizes, const Values& table, const std::vector<std::int32_t>& tokens);

/// Weights: norm, weight.
Values logits(const Sizes& sizes, const ValueList& w, const Values& x);

/// Sum of the negative log likelihoods of the targets that are not negative.
double loss(const Sizes& sizes, const ValueList& w, const Values& x, const std::vector<std::int32_t>& targets);

/// The gradients of f(w, x) with respect to each weight, then with respect to x.
ValueList gradients(const std::function<double(const ValueList&, const Values&)>& f, const ValueList& w,
                    const Values& x);

/// L2 norm of the difference, relative to the expected L2 norm; infinite if any number is not finite. For gradients
/// that vanish (of q and k, if every query attends to one key) the norm counts as 0.1, which is small for all others.
double relative(const Values& found, const Values& expected);

/// The largest relative error over a list of tensors.
double relative(const ValueList& found, const ValueList& expected);

/// The product x W of x [T, out] and W [out, in].
Values times(const Values& x, const Values& w, std::int64_t out);

/// The product dy^T x of dy [T, out] and x [T, in].
Values outer(const Values& dy, const Values& x, std::int64_t out, std::int64_t in);

/// Gradients of gate, up, down and x of an MLP without low-rank paths. The gradients of these paths are empty.
ValueList swiglu_mlp_gradients(const Sizes& s, const ValueList& w, const Values& x, const Values& dy);

/// Gradients of norm, gate, up, down and x of x + mlp(norm(x)).
ValueList residual_mlp_gradients(const Sizes& s, const ValueList& w, const Values& x, const Values& dy);

}  // namespace fsdp::nn::reference
