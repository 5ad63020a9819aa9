// SPDX-License-Identifier: Apache-2.0
/// @file
/// Draws a forecast on a terminal.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

namespace forecaster {

/// Prints two curves over time; a line of text has a height of 0.2. `o`: the true value, `*`: the forecast, `@`: both.
inline void print_picture(std::span<const float> happened, std::span<const float> forecast) {
  constexpr float highest = 1.6f;
  constexpr int rows = 17;
  std::vector<std::string> lines(rows, std::string(happened.size(), ' '));
  const auto draw = [&](std::size_t time, float value, char mark) {
    const int row = std::clamp(static_cast<int>(std::lround((highest - value) * 5)), 0, rows - 1);
    char& at = lines[static_cast<std::size_t>(row)][time];
    at = at == ' ' ? mark : '@';
  };
  for (std::size_t time = 0; time < happened.size(); ++time) {
    draw(time, happened[time], 'o');
    draw(time, forecast[time], '*');
  }
  for (int row = 0; row < rows; ++row)
    std::printf("%+.1f |%s\n", static_cast<double>(highest) - 0.2 * row, lines[static_cast<std::size_t>(row)].c_str());
}

}  // namespace forecaster
