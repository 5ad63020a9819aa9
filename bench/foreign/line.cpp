// SPDX-License-Identifier: Apache-2.0

#include "line.hpp"

#include <array>
#include <cmath>
#include <cstdio>

namespace fsdp::bench {

Line& Line::add(std::string_view name, std::string_view text) { return add_value(name, '"' + std::string(text) + '"'); }
Line& Line::add(std::string_view name, std::int64_t number) { return add_value(name, std::to_string(number)); }
Line& Line::add(std::string_view name, double number) {
  if (!std::isfinite(number)) return add_value(name, "null");
  std::array<char, 32> digits{};
  std::snprintf(digits.data(), digits.size(), "%.5g", number);
  return add_value(name, digits.data());
}

Line& Line::add_value(std::string_view name, std::string_view value) {
  text_ += text_.empty() ? "{\"" : ",\"";
  text_ += name;
  text_ += "\":";
  text_ += value;
  return *this;
}

void Line::print() const {
  std::printf("%s}\n", text_.c_str());
  std::fflush(stdout);
}

}  // namespace fsdp::bench
