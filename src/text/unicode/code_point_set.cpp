// SPDX-License-Identifier: Apache-2.0
#include "code_point_set.hpp"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

namespace fsdp::text {

CodePointSet::CodePointSet(std::vector<CodePointRange> ranges) {
  std::erase_if(ranges, [](const CodePointRange& range) { return range.begin >= range.end; });
  std::ranges::sort(ranges);
  for (const CodePointRange& range : ranges) {
    if (!ranges_.empty() && range.begin <= ranges_.back().end) {
      ranges_.back().end = std::max(ranges_.back().end, range.end);
    } else {
      ranges_.push_back(range);
    }
  }
}

bool CodePointSet::contains(char32_t code) const {
  const auto after = std::ranges::upper_bound(ranges_, code, {}, &CodePointRange::begin);
  return after != ranges_.begin() && code < std::prev(after)->end;
}

CodePointSet CodePointSet::operator|(const CodePointSet& other) const {
  std::vector<CodePointRange> all = ranges_;
  all.insert(all.end(), other.ranges_.begin(), other.ranges_.end());
  return CodePointSet(std::move(all));
}

CodePointSet CodePointSet::operator~() const {
  std::vector<CodePointRange> gaps;
  char32_t begin = 0;
  for (const CodePointRange& range : ranges_) {
    gaps.push_back({begin, range.begin});
    begin = range.end;
  }
  gaps.push_back({begin, code_point_end});
  return CodePointSet(std::move(gaps));
}

CodePointTable::CodePointTable(const std::function<void(std::vector<std::uint8_t>&)>& fill) {
  std::vector<std::uint8_t> all(code_point_end, 0);
  fill(all);
  std::map<std::string_view, std::uint32_t> known;
  for (std::size_t page = 0; page < all.size(); page += 256) {
    const std::string_view content(reinterpret_cast<const char*>(all.data() + page), 256);
    const auto [entry, is_new] = known.emplace(content, static_cast<std::uint32_t>(bytes_.size()));
    if (is_new)
      bytes_.insert(bytes_.end(), all.begin() + static_cast<std::ptrdiff_t>(page),
                    all.begin() + static_cast<std::ptrdiff_t>(page) + 256);
    pages_.push_back(entry->second);
  }
}

}  // namespace fsdp::text
