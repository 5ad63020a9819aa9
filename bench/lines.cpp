// SPDX-License-Identifier: Apache-2.0

#include "lines.hpp"

#include <cmath>
#include <cstdio>

#include <nlohmann/json.hpp>

namespace fsdp::bench {
namespace {

double rounded(double value) {
  if (value == 0 || !std::isfinite(value)) return value;
  const double scale = std::pow(10.0, 4 - std::floor(std::log10(std::abs(value))));
  return scale >= 1 ? std::round(value * scale) / scale : std::round(value);
}

}  // namespace

Line& Line::add(std::string_view name, std::string_view value) { return append(name, nlohmann::json(value).dump()); }

Line& Line::add(std::string_view name, double value) { return add_exact(name, rounded(value)); }

Line& Line::add_exact(std::string_view name, double value) { return append(name, nlohmann::json(value).dump()); }

Line& Line::append(std::string_view name, const std::string& json) {
  text_.append(text_.empty() ? "" : ",").append(nlohmann::json(name).dump()).append(":").append(json);
  return *this;
}

void Line::print() const {
  std::printf("{%s}\n", text_.c_str());
  std::fflush(stdout);
}

}  // namespace fsdp::bench
