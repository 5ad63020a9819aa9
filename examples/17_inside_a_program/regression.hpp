// SPDX-License-Identifier: Apache-2.0
/// @file
/// The host's computation: y = v . relu(W x), fitted to a few records, in plain loops.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include <tessera/fsdp/sharded.hpp>

namespace regression {

constexpr std::int64_t inputs = 6, hidden = 16;

inline std::vector<fsdp::Unit> units() {
  return {{"first", {{"W", {hidden, inputs}, fsdp::Initial::normal(0.4)}}},
          {"second", {{"v", {hidden}, fsdp::Initial::normal(0.4)}}}};
}

/// A record of one rank: the input, and the expected output.
struct Record {
  std::array<float, inputs> x;
  float y;

  explicit Record(int rank) : y(static_cast<float>(rank % 3) - 0.5f) {
    for (std::size_t i = 0; i < x.size(); ++i)
      x[i] = static_cast<float>((i * 7 + static_cast<std::size_t>(rank) * 5) % 11) / 11 - 0.4f;
  }
};

/// Runs forward and backward of one record. Returns half its squared error divided by `records`, as the gradients are.
template <class Pass>
double compute(Pass& pass, const Record& record, int records) {
  std::array<float, hidden> h{}, dh{};
  {
    auto use = pass.forward(0);
    const auto w = use.weight("W");
    for (std::int64_t r = 0; r < hidden; ++r) {
      float sum = 0;
      for (std::int64_t c = 0; c < inputs; ++c) sum += w.row(r)[c] * record.x[static_cast<std::size_t>(c)];
      h[static_cast<std::size_t>(r)] = std::max(sum, 0.0f);
    }
  }
  float y = 0;
  {
    auto use = pass.forward(1);
    const auto v = use.weight("v");
    for (std::int64_t r = 0; r < hidden; ++r) y += v[r] * h[static_cast<std::size_t>(r)];
  }
  const float dy = (y - record.y) / static_cast<float>(records);
  {
    auto use = pass.backward(1);
    const auto v = use.weight("v");
    const auto dv = use.zeroed("v");
    for (std::int64_t r = 0; r < hidden; ++r) {
      dv[r] += dy * h[static_cast<std::size_t>(r)];
      dh[static_cast<std::size_t>(r)] = h[static_cast<std::size_t>(r)] > 0 ? dy * v[r] : 0;
    }
  }
  {
    auto use = pass.backward(0);
    const auto dw = use.zeroed("W");
    for (std::int64_t r = 0; r < hidden; ++r)
      for (std::int64_t c = 0; c < inputs; ++c)
        dw.row(r)[c] += dh[static_cast<std::size_t>(r)] * record.x[static_cast<std::size_t>(c)];
  }
  return 0.5 * static_cast<double>(dy) * static_cast<double>(y - record.y);
}

}  // namespace regression
