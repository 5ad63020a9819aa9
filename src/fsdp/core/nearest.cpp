// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/core/nearest.hpp>

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

namespace fsdp {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> older(b.size() + 1), previous(b.size() + 1), row(b.size() + 1);
  std::iota(previous.begin(), previous.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = previous[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({previous[j] + 1, row[j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], older[j - 2] + 1);
    }
    std::swap(older, previous);
    std::swap(previous, row);
  }
  return previous[b.size()];
}

std::string nearest(std::string_view word, std::span<const std::string> words) {
  const bool is_pattern = word.ends_with('*');  // a pattern is compared with the beginnings of the words
  if (is_pattern) word.remove_suffix(1);
  std::string best;
  std::size_t fewest = std::numeric_limits<std::size_t>::max(), length = 0;
  for (const std::string& known : words) {
    const std::string_view compared = std::string_view(known).substr(0, is_pattern ? word.size() : known.size());
    const std::size_t edits = edit_distance(word, compared);
    if (edits < fewest) best = known, fewest = edits, length = std::max(word.size(), compared.size());
  }
  if (best.empty() || fewest <= std::max<std::size_t>(length * 2 / 5, 1)) return best;
  const auto begins = std::ranges::find_if(words, [&](std::string_view known) {
    const std::size_t first_part = word.find_first_of("-_");  // `learning-rate` does not match the word `learn`
    const bool begins_it =
        word.starts_with(known) && (first_part == std::string_view::npos || first_part <= known.size());
    return std::min(word.size(), known.size()) >= 3 && (known.starts_with(word) || begins_it);
  });
  return begins == words.end() ? std::string() : *begins;
}

std::string suggestion(std::string_view word, std::span<const std::string> words) {
  const std::string near = nearest(word, words);
  std::string text = near.empty() ? "known: " : "did you mean '" + near + "'? Known: ";
  for (std::size_t i = 0; i < words.size(); ++i) text += (i == 0 ? "" : ", ") + words[i];
  return text;
}

}  // namespace fsdp
