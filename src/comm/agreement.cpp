// SPDX-License-Identifier: Apache-2.0
#include <tessera/comm/agreement.hpp>

#include <algorithm>
#include <cstdint>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/identity.hpp>
#include <tessera/fsdp/core/terminal_text.hpp>

namespace fsdp::comm {
namespace {

/// Returns the line of `text` that contains character `at`.
std::string line_at(const std::string& text, std::size_t at) {
  const auto begin = at == 0 ? std::string::npos : text.rfind('\n', at - 1);
  const auto start = begin == std::string::npos ? 0 : begin + 1;
  return start < text.size() ? text.substr(start, text.find('\n', start) - start) : "";
}

}  // namespace

std::string name_of(const Monitor& monitor, std::ptrdiff_t rank) {
  const auto& hosts = monitor.hosts;
  const bool one = std::ranges::adjacent_find(hosts, std::ranges::not_equal_to()) == hosts.end();
  return one ? message("rank ", monitor.world_rank_of(static_cast<int>(rank)))
             : monitor.name_of(static_cast<int>(rank));
}

void require_same_texts(const Monitor& monitor, std::span<const std::string> texts, std::string_view what,
                        std::string_view then) {
  for (std::size_t rank = 1; rank < texts.size(); ++rank) {
    const auto [mine, theirs] = std::ranges::mismatch(texts[0], texts[rank]);
    if (mine == texts[0].end() && theirs == texts[rank].end()) continue;
    const auto at = static_cast<std::size_t>(mine - texts[0].begin());
    throw InputError(message(what, ": ", name_of(monitor, 0), " has '", shortened(line_at(texts[0], at), 400), "', ",
                             name_of(monitor, static_cast<std::ptrdiff_t>(rank)), " has '",
                             shortened(line_at(texts[rank], at), 400), "'; ", then));
  }
}

std::vector<std::string> gather_texts(const Ranks& ranks, const std::string& mine, std::string_view label) {
  auto longest = static_cast<std::int64_t>(mine.size());
  ranks.reduce(std::span<std::int64_t>(&longest, 1), Reduction::max, {label});
  std::vector<std::string> texts(static_cast<std::size_t>(ranks.size()));
  if (longest == 0) return texts;
  const auto width = static_cast<std::size_t>(longest);
  std::string padded = mine, all(width * texts.size(), '\0');
  padded.resize(width);
  ranks.gather_bytes(std::as_bytes(std::span(padded)), std::as_writable_bytes(std::span(all)), {label});
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    texts[rank] = all.substr(rank * width, width);
    texts[rank].erase(std::min(texts[rank].find('\0'), width));
  }
  return texts;
}

void check_same(const Ranks& ranks, std::string_view label, std::string_view what, FunctionRef<std::string()> text) {
  if (ranks.size() == 1 || !ranks.monitor().options.checks) return;
  require_same_texts(ranks.monitor(), gather_texts(ranks, text(), label), what, "give all ranks the same");
}

void agree_on_arguments(const Ranks& ranks, const std::string& arguments) {
  require_same_texts(ranks.monitor(), gather_texts(ranks, arguments + build_identity(), "arguments"),
                     "ranks were started with different arguments", "start all ranks with the same");
}

void agree_on_opened(const Ranks& ranks, const std::string& opened) {
  require_same_texts(ranks.monitor(), gather_texts(ranks, opened, "what was opened"), "ranks do not see the same",
                     "give all ranks the same files");
}

}  // namespace fsdp::comm
