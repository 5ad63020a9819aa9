// SPDX-License-Identifier: Apache-2.0
#include "reference.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

namespace fsdp::nn::reference {

Values linear(const Values& x, const Values& w, std::int64_t in) {
  const std::int64_t rows = count(x) / in, out = count(w) / in;
  Values y(static_cast<std::size_t>(rows * out));
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t o = 0; o < out; ++o)
      y[at(row, out, o)] = std::inner_product(&x[at(row, in, 0)], &x[at(row, in, 0)] + in, &w[at(o, in, 0)], 0.0);
  return y;
}

Values linear(const Sizes& sizes, const Values& x, const Values& w, std::int64_t in, const Values& a, const Values& b) {
  Values y = linear(x, w, in);
  if (a.empty()) return y;
  const Values path = linear(linear(x, a, in), b, sizes.rank);
  return device::reference::combined(1, std::move(y), static_cast<double>(sizes.scale), path);
}

Values swiglu_mlp(const Sizes& sizes, const ValueList& w, const Values& x) {
  Values h = linear(sizes, x, w[0], sizes.hidden, w[3], w[5]);
  const Values up = linear(sizes, x, w[1], sizes.hidden, w[4], w[6]);
  for (std::size_t i = 0; i < h.size(); ++i) h[i] = h[i] / (1 + std::exp(-h[i])) * up[i];
  return linear(sizes, h, w[2], sizes.intermediate, w[7], w[8]);
}

/// Applies rotary positions to every head of x [T, heads * d]; pairs are elements i and i + d / 2.
static Values rotate(const Sizes& sizes, Values x, std::int64_t heads) {
  const auto d = static_cast<std::size_t>(sizes.head_dim);
  return device::reference::rope_reference(std::move(x), static_cast<std::size_t>(heads) * d, d,
                                           static_cast<double>(sizes.theta),
                                           [&](std::int64_t t) { return t - sizes.first(t); });
}

/// Causal attention of the query of token `t` in head `head`; writes head_dim numbers to `out`.
static void attend(const Sizes& sizes, const Values& q, const Values& k, const Values& v, std::int64_t t,
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
static Values plus_bias(Values x, const Values& bias) {
  for (std::size_t i = 0; i < x.size() && !bias.empty(); ++i) x[i] += bias[i % bias.size()];
  return x;
}

Values residual_attention(const Sizes& sizes, const ValueList& w, const Values& x) {
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

Values residual_mlp(const Sizes& sizes, const ValueList& w, const Values& x) {
  const Values normed = norm_reference(x, w[0], static_cast<double>(sizes.eps));
  return plus(x, swiglu_mlp(sizes, {w.begin() + 1, w.end()}, normed));
}

Values transformer_block(const Sizes& sizes, const ValueList& w, const Values& x) {
  const auto mlp = w.begin() + attention_weights;
  const Values middle = residual_attention(sizes, {w.begin(), mlp}, x);
  return residual_mlp(sizes, {mlp, w.end()}, middle);
}

Values embedding(const Sizes& sizes, const Values& table, const std::vector<std::int32_t>& tokens) {
  Values y;
  for (const std::int32_t token : tokens)
    y.insert(y.end(), &table[at(token, sizes.hidden, 0)], &table[at(token, sizes.hidden, 0)] + sizes.hidden);
  return y;
}

Values logits(const Sizes& sizes, const ValueList& w, const Values& x) {
  return linear(norm_reference(x, w[0], static_cast<double>(sizes.eps)), w[1], sizes.hidden);
}

double loss(const Sizes& sizes, const ValueList& w, const Values& x, const std::vector<std::int32_t>& targets) {
  return device::reference::cross_entropy_reference(logits(sizes, w, x), targets, 1).loss;
}

ValueList gradients(const std::function<double(const ValueList&, const Values&)>& f, const ValueList& w,
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

double relative(const Values& found, const Values& expected) {
  const auto [error, norm] = device::reference::error_and_norm(found, expected);
  const double ratio = error / std::max(norm, 0.1);
  return std::isfinite(ratio) ? ratio : std::numeric_limits<double>::infinity();
}

double relative(const ValueList& found, const ValueList& expected) {
  if (found.size() != expected.size()) return std::numeric_limits<double>::infinity();
  double most = 0;
  for (std::size_t i = 0; i < found.size(); ++i) most = std::max(most, relative(found[i], expected[i]));
  return most;
}

Values times(const Values& x, const Values& w, std::int64_t out) {
  const std::int64_t rows = count(x) / out, in = count(w) / out;
  Values y(static_cast<std::size_t>(rows * in));
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t o = 0; o < out; ++o)
      for (std::int64_t i = 0; i < in; ++i) y[at(row, in, i)] += x[at(row, out, o)] * w[at(o, in, i)];
  return y;
}

Values outer(const Values& dy, const Values& x, std::int64_t out, std::int64_t in) {
  Values dw(static_cast<std::size_t>(out * in));
  for (std::int64_t row = 0; row < count(x) / in; ++row)
    for (std::int64_t o = 0; o < out; ++o)
      for (std::int64_t i = 0; i < in; ++i) dw[at(o, in, i)] += dy[at(row, out, o)] * x[at(row, in, i)];
  return dw;
}

ValueList swiglu_mlp_gradients(const Sizes& s, const ValueList& w, const Values& x, const Values& dy) {
  Values gate = linear(x, w[0], s.hidden), up = linear(x, w[1], s.hidden);
  const Values dh = times(dy, w[2], s.hidden);
  Values h = dh;
  for (std::size_t i = 0; i < h.size(); ++i) {
    const double sigmoid = 1 / (1 + std::exp(-gate[i])), silu = gate[i] * sigmoid;
    h[i] = silu * up[i];
    gate[i] = dh[i] * up[i] * (sigmoid + silu * (1 - sigmoid));
    up[i] = dh[i] * silu;
  }
  ValueList result(10);
  result[0] = outer(gate, x, s.intermediate, s.hidden);
  result[1] = outer(up, x, s.intermediate, s.hidden);
  result[2] = outer(dy, h, s.hidden, s.intermediate);
  result[9] = plus(times(gate, w[0], s.intermediate), times(up, w[1], s.intermediate));
  return result;
}

ValueList residual_mlp_gradients(const Sizes& s, const ValueList& w, const Values& x, const Values& dy) {
  const auto eps = static_cast<double>(s.eps);
  ValueList result = swiglu_mlp_gradients(s, {w.begin() + 1, w.end()}, norm_reference(x, w[0], eps), dy);
  device::reference::NormGradients norm = device::reference::norm_gradients(x, w[0], result.back(), eps);
  result.back() = plus(std::move(norm.dx), dy);
  result.insert(result.begin(), std::move(norm.dw));
  return result;
}

}  // namespace fsdp::nn::reference
