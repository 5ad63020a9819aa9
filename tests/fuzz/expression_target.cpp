// SPDX-License-Identifier: Apache-2.0
// A regular expression and the text in which it is searched.
#include <vector>

#include "src/text/patterns/regular_expression.hpp"
#include "src/text/unicode/code_points.hpp"
#include "target.hpp"

FUZZ_TARGET(expression) {
  const auto parts = fsdp::fuzz::parts_of(input);
  const std::string_view pattern = parts.first, text = parts.second;
  if (fsdp::text::valid_length(pattern) != pattern.size() || fsdp::text::valid_length(text) != text.size()) return;
  fsdp::fuzz::refused_or_read([&] {
    const fsdp::text::Budget::Task task = {.name = "matching", .advice = "shorten it"};
    fsdp::text::Budget budget(task, text.size(), {.base = 100'000, .per_byte = 100});
    std::vector<fsdp::text::Match> matches;
    fsdp::text::RegularExpression(pattern, "pattern").find_all(text, matches, budget);
  });
}
