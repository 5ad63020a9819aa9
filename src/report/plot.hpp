// SPDX-License-Identifier: Apache-2.0
/// @file
/// Curves of runs as an SVG picture: loss and held-out loss, gradient norm and learning rate, by step.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace fsdp::report {

/// What a metrics file says of a step. Values that were not finite are NaN or infinite.
struct StepPoint {
  std::int64_t step = 0;
  double loss = 0, grad_norm = 0, lr = 0;
};

struct HeldOutPoint {
  std::int64_t step = 0;
  double loss = 0;
};

struct PlottedRun {
  std::string name = {};
  std::vector<StepPoint> steps = {};  ///< ascending: what a resumed run did again is there once, as it was last
  std::vector<HeldOutPoint> held_out = {};
  std::vector<std::string> left_out =
      {};  ///< a sentence for each line that says nothing, such as "m.jsonl:3: is empty"
};

/// Reads a metrics file. Throws InputError where it cannot be read or holds no step.
PlottedRun read_run(const std::filesystem::path& path);

/// Round numbers within [low, high], about `wanted` of them.
std::vector<double> ticks(double low, double high, int wanted);

/// A range that shows all finite values but few that lie far from the others. Never empty.
std::pair<double, double> shown_range(std::vector<double> values);

/// The picture, as text.
std::string svg_of(const std::vector<PlottedRun>& runs);

}  // namespace fsdp::report
