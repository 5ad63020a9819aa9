// SPDX-License-Identifier: Apache-2.0
#include <tessera/comm/ranks.hpp>

#include <algorithm>
#include <exception>

#include <tessera/comm/stopped.hpp>
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

namespace {

constexpr char stopped = 's';  ///< followed by the signal's number as a character
constexpr char other = 'o';

/// Calls visit.operator()<Type>(letter) for each exception type that other ranks rethrow as the same type, except
/// StoppedError. All other types are rethrown as Error.
template <class Visit>
void for_each_type(const Visit& visit) {
  visit.template operator()<InputError>('i');
  visit.template operator()<LogicError>('l');
  visit.template operator()<MemoryError>('m');
  visit.template operator()<DivergedError>('d');
  visit.template operator()<CorruptionError>('c');
}

}  // namespace

std::string encoded_exception() {
  try {
    throw;
  } catch (const CollectiveError&) {
    throw;
  } catch (const StoppedError& error) {
    return {stopped + std::string(1, static_cast<char>(error.signal_number())) + error.what()};
  } catch (const std::exception& error) {
    char type = other;
    for_each_type([&]<class Type>(char letter) {
      if (dynamic_cast<const Type*>(&error) != nullptr) type = letter;
    });
    return type + std::string(error.what());
  } catch (...) {
    return other + std::string("an exception of unknown type");
  }
}

void throw_first(std::span<const std::string> exceptions, const Monitor* monitor) {
  const auto first = std::ranges::find_if(exceptions, [](const std::string& each) { return !each.empty(); });
  if (first == exceptions.end()) return;
  const char type = first->front();
  if (type == stopped) throw StoppedError((*first)[1], first->substr(2));
  const bool named = monitor != nullptr && std::ranges::count(exceptions, *first) != std::ssize(exceptions);
  const std::string text = (named ? name_of(*monitor, first - exceptions.begin()) + ": " : "") + first->substr(1);
  for_each_type([&]<class Type>(char letter) {
    if (letter == type) throw Type(text);
  });
  throw Error(text);
}

void detail::call_together(const Ranks& ranks, std::string_view label, FunctionRef<void()> f) {
  std::string mine;
  try {
    f();
  } catch (...) {
    mine = encoded_exception();
  }
  throw_first(gather_texts(ranks, mine, label), &ranks.monitor());
}

}  // namespace fsdp::comm
