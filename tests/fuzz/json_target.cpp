// SPDX-License-Identifier: Apache-2.0
// JSON, parsed in text order and by keys: both parsers accept it, or both refuse it.
#include "src/fsdp/core/json/strict_json.hpp"
#include "target.hpp"

FUZZ_TARGET(json) {
  const fsdp::JsonLimits limits{.depth = 20, .values = 10'000, .array = 1000, .text = 10'000};
  bool ordered = false, by_keys = false;
  std::string text;
  fsdp::fuzz::refused_or_read([&] {
    text = fsdp::parse_strict(input, "input", limits).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
    by_keys = true;
  });
  fsdp::fuzz::refused_or_read([&] {
    const nlohmann::ordered_json json = fsdp::parse_strict_ordered(input, "input", limits);
    if (by_keys && nlohmann::json(json).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) != text)
      throw fsdp::LogicError("the two orders differ");
    ordered = true;
  });
  if (ordered != by_keys) throw fsdp::LogicError("one order was read, and the other refused");
}
