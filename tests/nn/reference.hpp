// SPDX-License-Identifier: Apache-2.0
/// @file
/// References of all modules in plain float64 code, one number at a time, and gradients by central differences.
///
/// Matrices are flat and row-major. Weights are in the order of the modules' parameters. Nothing here is tiled.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <tessera/fsdp/core/error.hpp>

#include "device/reference.hpp"

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
inline Values linear(const Values& x, const Values& w, std::int64_t in) {
  const std::int64_t rows = count(x) / in, out = count(w) / in;
  Values y(static_cast<std::size_t>(rows * out));
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t o = 0; o < out; ++o)
      y[at(row, out, o)] = std::inner_product(&x[at(row, in, 0)], &x[at(row, in, 0)] + in, &w[at(o, in, 0)], 0.0);
  return y;
}

/// y = x W^T + s (x A^T) B^T, or x W^T if A is empty.
inline Values linear(const Sizes& sizes, const Values& x, const Values& w, std::int64_t in, const Values& a,
                     const Values& b) {
  Values y = linear(x, w, in);
  if (a.empty()) return y;
  const Values path = linear(linear(x, a, in), b, sizes.rank);
  return device::reference::combined(1, std::move(y), static_cast<double>(sizes.scale), path);
}

/// Weights: gate, up, down, then A of gate and up, B of both, and A and B of down; A and B are empty without a path.
inline Values swiglu_mlp(const Sizes& sizes, const ValueList& w, const Values& x) {
  Values h = linear(sizes, x, w[0], sizes.hidden, w[3], w[5]);
  const Values up = linear(sizes, x, w[1], sizes.hidden, w[4], w[6]);
  for (std::size_t i = 0; i < h.size(); ++i) h[i] = h[i] / (1 + std::exp(-h[i])) * up[i];
  return linear(sizes, h, w[2], sizes.intermediate, w[7], w[8]);
}

/// Applies rotary positions to every head of x [T, heads * d]; pairs are elements i and i + d / 2.
inline Values rotate(const Sizes& sizes, Values x, std::int64_t heads) {
  const auto d = static_cast<std::size_t>(sizes.head_dim);
  return device::reference::rope_reference(std::move(x), static_cast<std::size_t>(heads) * d, d,
                                           static_cast<double>(sizes.theta),
                                           [&](std::int64_t t) { return t - sizes.first(t); });
}

/// Causal attention of the query of token `t` in head `head`; writes head_dim numbers to `out`.
inline void attend(const Sizes& sizes, const Values& q, const Values& k, const Values& v, std::int64_t t,
                   std::int64_t head, double* out) {
  const std::int64_t d = sizes.head_dim, kv = head / (sizes.heads / sizes.kv_heads), first = sizes.first_seen(t);
  Values score;
  for (std::int64_t key = first; key <= t; ++key) {
    double sum = 0;
    for (std::int64_t i = 0; i < d; ++i)
      sum += q[at(t, sizes.heads * d, head * d + i)] * k[at(key, sizes.kv_heads * d, kv * d + i)];
    score.push_back(sum / std::sqrt(static_cast<double>(d)));
  }
  const double most = *std::max_element(score.begin(), score.end());
  double total = 0;
  for (double& s : score) total += s = std::exp(s - most);
  for (std::int64_t i = 0; i < d; ++i) {
    out[i] = 0;
    for (std::int64_t key = first; key <= t; ++key)
      out[i] += score[static_cast<std::size_t>(key - first)] / total * v[at(key, sizes.kv_heads * d, kv * d + i)];
  }
}

/// x plus the bias in every row; x if the bias is empty.
inline Values plus_bias(Values x, const Values& bias) {
  for (std::size_t i = 0; i < x.size() && !bias.empty(); ++i) x[i] += bias[i % bias.size()];
  return x;
}

/// The number of weights of ResidualAttention.
inline constexpr std::size_t attention_weights = 18;

/// Weights: norm, q, k, v, out, then the biases of q, k and v, the head norms, A of q, k and v, B of q, k and v, and A
/// and B of out; absent ones are empty.
inline Values residual_attention(const Sizes& sizes, const ValueList& w, const Values& x) {
  const auto eps = static_cast<double>(sizes.eps);
  const Values normed = norm_reference(x, w[0], eps);
  const auto projected = [&](std::size_t i) {
    return plus_bias(linear(sizes, normed, w[i], sizes.hidden, w[i + 9], w[i + 12]), w[i + 4]);
  };
  const auto by_head = [&](const Values& y, const Values& norm) {
    return norm.empty() ? y : norm_reference(y, norm, eps);
  };
  const Values q = rotate(sizes, by_head(projected(1), w[8]), sizes.heads);
  const Values k = rotate(sizes, by_head(projected(2), w[9]), sizes.kv_heads);
  const Values v = projected(3);
  const std::int64_t columns = sizes.heads * sizes.head_dim;
  Values out(static_cast<std::size_t>(sizes.tokens() * columns));
  for (std::int64_t t = 0; t < sizes.tokens(); ++t)
    for (std::int64_t head = 0; head < sizes.heads; ++head)
      attend(sizes, q, k, v, t, head, &out[at(t, columns, head * sizes.head_dim)]);
  return plus(x, linear(sizes, out, w[4], columns, w[16], w[17]));
}

/// Weights: norm, then the weights of the MLP.
inline Values residual_mlp(const Sizes& sizes, const ValueList& w, const Values& x) {
  const Values normed = norm_reference(x, w[0], static_cast<double>(sizes.eps));
  return plus(x, swiglu_mlp(sizes, {w.begin() + 1, w.end()}, normed));
}

/// Weights: the weights of attention, then the weights of the MLP.
inline Values transformer_block(const Sizes& sizes, const ValueList& w, const Values& x) {
  const auto mlp = w.begin() + attention_weights;
  const Values middle = residual_attention(sizes, {w.begin(), mlp}, x);
  return residual_mlp(sizes, {mlp, w.end()}, middle);
}

inline Values embedding(const Sizes& sizes, const Values& table, const std::vector<std::int32_t>& tokens) {
  Values y;
  for (const std::int32_t token : tokens)
    y.insert(y.end(), &table[at(token, sizes.hidden, 0)], &table[at(token, sizes.hidden, 0)] + sizes.hidden);
  return y;
}

/// Weights: norm, weight.
inline Values logits(const Sizes& sizes, const ValueList& w, const Values& x) {
  return linear(norm_reference(x, w[0], static_cast<double>(sizes.eps)), w[1], sizes.hidden);
}

/// Sum of the negative log likelihoods of the targets that are not negative.
inline double loss(const Sizes& sizes, const ValueList& w, const Values& x, const std::vector<std::int32_t>& targets) {
  return device::reference::cross_entropy_reference(logits(sizes, w, x), targets, 1).loss;
}

/// The gradients of f(w, x) with respect to each weight, then with respect to x.
inline ValueList gradients(const std::function<double(const ValueList&, const Values&)>& f, const ValueList& w,
                           const Values& x) {
  ValueList result;
  for (std::size_t i = 0; i < w.size(); ++i) {
    ValueList changed = w;
    result.push_back(device::reference::finite_differences(
        [&](const Values& value) {
          changed[i] = value;
          return f(changed, x);
        },
        w[i]));
  }
  result.push_back(device::reference::finite_differences([&](const Values& value) { return f(w, value); }, x));
  return result;
}

/// L2 norm of the difference, relative to the expected L2 norm; infinite if any number is not finite. For gradients
/// that vanish (of q and k, if every query attends to one key) the norm counts as 0.1, which is small for all others.
inline double relative(const Values& found, const Values& expected) {
  const auto [error, norm] = device::reference::error_and_norm(found, expected);
  const double ratio = error / std::max(norm, 0.1);
  return std::isfinite(ratio) ? ratio : std::numeric_limits<double>::infinity();
}

/// The largest relative error over a list of tensors.
inline double relative(const ValueList& found, const ValueList& expected) {
  if (found.size() != expected.size()) return std::numeric_limits<double>::infinity();
  double most = 0;
  for (std::size_t i = 0; i < found.size(); ++i) most = std::max(most, relative(found[i], expected[i]));
  return most;
}

}  // namespace fsdp::nn::reference
