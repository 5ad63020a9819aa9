// SPDX-License-Identifier: Apache-2.0
#include <fstream>
#include <limits>
#include <optional>

#include <tessera/fsdp/core/error.hpp>

#include "../../fsdp/core/json/strict_json.hpp"
#include "files.hpp"
#include "plot.hpp"

namespace fsdp::report {
namespace {

using Line = nlohmann::json;

/// Returns a number; also reads the strings that metrics.cpp writes for NaN and infinities.
std::optional<double> number_of(const Line& line, const char* key) {
  const std::optional<std::string> word = value_at<std::string>(line, key);
  constexpr double infinity = std::numeric_limits<double>::infinity();
  if (word == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (word == "inf") return infinity;
  if (word == "-inf") return -infinity;
  return value_at<double>(line, key);
}

/// Reads a line of a metrics file. Returns false if it is not a valid line; lines without a step are valid, too.
bool take(const Line& line, PlottedRun& run) {
  if (!line.is_object()) return false;
  const auto event = line.find("event");
  if (event != line.end() && *event != "validation") return true;
  const auto number = line.find("step");
  if (number == line.end() || !number->is_number_integer()) return false;
  const auto step = number->get<std::int64_t>();
  if (event != line.end()) {
    const std::optional<double> loss = number_of(line, "validation_loss");
    if (loss) run.held_out.push_back({.step = step, .loss = *loss});
    return loss.has_value();
  }
  const std::optional<double> loss = number_of(line, "loss"), norm = number_of(line, "grad_norm"),
                              lr = number_of(line, "lr");
  if (!loss || !norm || !lr) return false;
  while (!run.steps.empty() && run.steps.back().step >= step) run.steps.pop_back();
  while (!run.held_out.empty() && run.held_out.back().step >= step) run.held_out.pop_back();
  StepPoint& point = run.steps.emplace_back(StepPoint{.step = step, .loss = *loss, .grad_norm = *norm, .lr = *lr});
  if (const auto groups = line.find("groups"); groups != line.end() && groups->is_object())
    for (const auto& [name, group] : groups->items())
      if (const auto apart = group.is_object() ? number_of(group, "grad_norm") : std::nullopt)
        point.norms_apart[name] = *apart;
  return true;
}

}  // namespace

bool holds_metrics(const std::filesystem::path& path) {
  std::ifstream file(path);
  for (std::string text; std::getline(file, text);) {
    const Line line = json_value(text);
    if (!line.is_object() || line.contains("event")) continue;
    return line.contains("loss");
  }
  return false;
}

PlottedRun read_run(const std::filesystem::path& path) {
  PlottedRun run{.name = path.string()};
  read_lines("plot: ", path, [&](std::int64_t number, const std::string& text) {
    if (!take(json_value(text), run))
      run.left_out.push_back(message(path.string(), ":", number, ": ",
                                     text.empty() ? "is empty" : "is no line of a metrics file, or a part of one"));
  });
  require<InputError>(!run.steps.empty(), "plot: ", path.string(), " holds no step; give files that --metrics wrote",
                      run.left_out.empty() ? "" : ". ", run.left_out.empty() ? "" : run.left_out.front());
  return run;
}

}  // namespace fsdp::report
