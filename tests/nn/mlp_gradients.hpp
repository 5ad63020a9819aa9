// SPDX-License-Identifier: Apache-2.0
/// @file
/// Gradients of matmuls and of the MLP in float64 by the chain rule, for sizes at which central differences are too
/// slow.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "reference.hpp"

namespace fsdp::nn::reference {

/// The product x W of x [T, out] and W [out, in].
inline Values times(const Values& x, const Values& w, std::int64_t out) {
  const std::int64_t rows = count(x) / out, in = count(w) / out;
  Values y(static_cast<std::size_t>(rows * in));
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t o = 0; o < out; ++o)
      for (std::int64_t i = 0; i < in; ++i) y[at(row, in, i)] += x[at(row, out, o)] * w[at(o, in, i)];
  return y;
}

/// The product dy^T x of dy [T, out] and x [T, in].
inline Values outer(const Values& dy, const Values& x, std::int64_t out, std::int64_t in) {
  Values dw(static_cast<std::size_t>(out * in));
  for (std::int64_t row = 0; row < count(x) / in; ++row)
    for (std::int64_t o = 0; o < out; ++o)
      for (std::int64_t i = 0; i < in; ++i) dw[at(o, in, i)] += dy[at(row, out, o)] * x[at(row, in, i)];
  return dw;
}

/// Gradients of gate, up, down and x of an MLP without low-rank paths. The gradients of these paths are empty.
inline ValueList swiglu_mlp_gradients(const Sizes& s, const ValueList& w, const Values& x, const Values& dy) {
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

/// Gradients of norm, gate, up, down and x of x + mlp(norm(x)).
inline ValueList residual_mlp_gradients(const Sizes& s, const ValueList& w, const Values& x, const Values& dy) {
  const auto eps = static_cast<double>(s.eps);
  ValueList result = swiglu_mlp_gradients(s, {w.begin() + 1, w.end()}, norm_reference(x, w[0], eps), dy);
  device::reference::NormGradients norm = device::reference::norm_gradients(x, w[0], result.back(), eps);
  result.back() = plus(std::move(norm.dx), dy);
  result.insert(result.begin(), std::move(norm.dw));
  return result;
}

}  // namespace fsdp::nn::reference
