// SPDX-License-Identifier: Apache-2.0
/// Scaled rotary positions.
#include "reference.hpp"

namespace fsdp::device {
namespace {

using namespace reference;

/// The table of positions [0, 64) of heads of 16, as float64: cos, then sin.
Values table_of(double theta, const RotaryScaling& scaling) {
  Rank rank(1);
  Matrix<float> table(64, 16);
  enqueue(rank.stream, RotaryTable{.theta = static_cast<float>(theta), .scaling = scaling, .table = table});
  return table.values();
}

/// The same from frequencies.
Values table_of(const std::vector<double>& frequencies, double magnitude) {
  Values values;
  for (int position = 0; position < 64; ++position) {
    for (const double f : frequencies) values.push_back(magnitude * std::cos(position * f));
    for (const double f : frequencies) values.push_back(magnitude * std::sin(position * f));
  }
  return values;
}

TEST(RotaryTable, ScalesFrequenciesAsThePapersDo) {
  using Kind = RotaryScaling::Kind;
  constexpr double two_pi = 6.283185307179586;
  std::vector<double> plain, linear, llama3, yarn;
  for (int i = 0; i < 8; ++i) {
    const double f = std::pow(100.0, -i / 8.0), wavelength = two_pi / f;
    plain.push_back(f);
    linear.push_back(f / 4);
    // Of 32 positions: up to 8 a turn is fast (factor 4), from 32 on slow (factor 1).
    const double smooth = (32 / wavelength - 1) / (4.0 - 1);
    llama3.push_back(wavelength < 8 ? f : wavelength > 32 ? f / 8 : (1 - smooth) * f / 8 + smooth * f);
    const double ramp = std::clamp((i - 2) / (6.0 - 2), 0.0, 1.0);
    yarn.push_back(f / 4 * ramp + f * (1 - ramp));
  }
  const auto expect = [](const RotaryScaling& scaling, const Values& expected) {
    EXPECT_LT(difference(table_of(100, scaling), expected), 1e-6);
  };
  expect({}, table_of(plain, 1));
  expect({.kind = Kind::linear, .factor = 4}, table_of(linear, 1));
  expect({.kind = Kind::llama3, .factor = 8, .low = 1, .high = 4, .original = 32}, table_of(llama3, 1));
  expect({.kind = Kind::yarn, .factor = 4, .low = 2, .high = 6, .magnitude = 1.25}, table_of(yarn, 1.25));
}

}  // namespace
}  // namespace fsdp::device
