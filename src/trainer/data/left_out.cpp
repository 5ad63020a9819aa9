// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/data/left_out.hpp>

#include <algorithm>

#include <tessera/fsdp/core/error.hpp>

namespace fsdp::data {

void LeftOut::add(std::string_view reason, const std::string& path, bool binary, std::int64_t count) {
  const auto found = std::ranges::find(reasons_, reason, &Reason::name);
  if (found != reasons_.end()) {
    found->count += count;
  } else {
    reasons_.push_back({.name = std::string(reason), .first = path, .binary = binary, .count = count});
  }
}

void LeftOut::add(const LeftOut& other) {
  for (const Reason& reason : other.reasons_) add(reason.name, reason.first, reason.binary, reason.count);
}

void LeftOut::add_earlier(std::int64_t files) {
  if (files > 0) add("not text, when the tokens were made", "", true, files);
}

std::int64_t LeftOut::count(std::string_view reason) const {
  const auto found = std::ranges::find(reasons_, reason, &Reason::name);
  return found == reasons_.end() ? 0 : found->count;
}

std::int64_t LeftOut::binary() const {
  std::int64_t count = 0;
  for (const Reason& reason : reasons_) count += reason.binary ? reason.count : 0;
  return count;
}

std::string LeftOut::text() const {
  std::string text;
  for (const Reason& reason : reasons_) {
    text += message(text.empty() ? "left out: " : ", ", reason.name, " ", reason.count);
    if (!reason.first.empty()) text += message(" (", reason.first, reason.count > 1 ? ", ..." : "", ")");
  }
  return text;
}

}  // namespace fsdp::data
