// SPDX-License-Identifier: Apache-2.0
/// @file
/// Draws runs as an SVG picture: loss and held-out loss, gradient norm and learning rate, over steps.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace fsdp::report {

/// The values of one step in a metrics file; they may be NaN or infinite.
struct StepPoint {
  std::int64_t step = 0;
  double loss = 0, grad_norm = 0, lr = 0;
  std::map<std::string, double> norms_apart = {};  ///< norms of parameter groups, by the groups' texts
};

struct HeldOutPoint {
  std::int64_t step = 0;
  double loss = 0;
};

struct PlottedRun {
  std::string name = {};
  std::vector<StepPoint> steps = {};  ///< in ascending order; a step that a resumed run repeated has its last values
  std::vector<HeldOutPoint> held_out = {};
  std::vector<std::string> left_out =
      {};  ///< a sentence for each line that cannot be used, such as "m.jsonl:3: is empty"
};

/// Returns whether a file contains metrics and not digests, as its first line about a step shows.
bool holds_metrics(const std::filesystem::path& path);

/// Reads a metrics file. Throws InputError if it cannot be read or has no steps.
PlottedRun read_run(const std::filesystem::path& path);

/// Returns about `wanted` round numbers in [low, high].
std::vector<double> ticks(double low, double high, int wanted);

/// Returns a range for an axis. It contains all finite values except a few outliers, and is never empty.
std::pair<double, double> shown_range(std::vector<double> values);

/// Returns the picture as SVG text.
std::string svg_of(const std::vector<PlottedRun>& runs);

}  // namespace fsdp::report
