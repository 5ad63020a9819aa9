// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/plan/search.hpp>

#include <algorithm>
#include <map>
#include <queue>
#include <set>
#include <tuple>
#include <utility>

#include <tessera/fsdp/core/error.hpp>

namespace fsdp::plan {
namespace {

class Search {
 public:
  Search(std::span<const Family> families, std::size_t keep, FunctionRef<Outcome(std::size_t, const Turned&)> ask)
      : families_(families),
        keep_(keep),
        ask_(ask),
        known_(families.size()),
        queued_(families.size()),
        state_(families.size()) {
    result_.fates.resize(families.size());
  }

  SearchResult run() && {
    for (std::size_t family = 0; family < families_.size(); ++family)
      if (!families_[family].after) queue_.push({0, family, unturned(family)});
    while (!queue_.empty() && result_.best.size() < keep_) {
      const Entry entry = queue_.top();
      queue_.pop();
      if (state_[entry.family] != State::done) visit(entry);
    }
    for (; !queue_.empty(); queue_.pop()) leave(queue_.top().family, queue_.top().turned, queue_.top().least);
    for (std::size_t family = 0; family < families_.size(); ++family)
      if (const auto after = families_[family].after)
        leave(family, unturned(family), result_.fates[*after].asked.outcome.seconds);
    return std::move(result_);
  }

 private:
  enum class State : std::uint8_t { untouched, begun, done };

  /// A configuration with a lower bound on its time.
  struct Entry {
    double least;
    std::size_t family;
    Turned turned;

    /// Reversed, so that the priority queue yields the least time first; of equal times the earlier family, and within
    /// a family the lower levels of the first knobs.
    friend bool operator<(const Entry& a, const Entry& b) {
      return std::tie(b.least, b.family, b.turned) < std::tie(a.least, a.family, a.turned);
    }
  };

  Turned unturned(std::size_t family) const { return Turned(families_[family].levels.size(), 0); }
  Turned turned_to_the_end(std::size_t family) const {
    Turned turned = families_[family].levels;
    for (int& level : turned) --level;
    return turned;
  }

  const Outcome& outcome(std::size_t family, const Turned& turned) {
    const auto [at, is_new] = known_[family].try_emplace(turned);
    if (is_new) {
      at->second = ask_(family, turned);
      ++result_.asked;
    }
    return at->second;
  }

  void end(std::size_t family, SearchOutcome fate, const Turned& turned) {
    state_[family] = State::done;
    result_.fates[family] = {fate, {family, turned, outcome(family, turned)}};
  }

  /// Evaluates a configuration. If it takes longer than its lower bound, queues it again with its actual time;
  /// otherwise no remaining configuration is faster.
  void visit(const Entry& entry) {
    const auto& [least, family, turned] = entry;
    const bool fastest = state_[family] == State::untouched;
    const bool was_known = known_[family].contains(turned);
    const Outcome found = outcome(family, turned);
    const bool can_be = found.refused.empty();
    if (fastest && !was_known) push_successors(family, can_be ? found.seconds : least);
    if (can_be && found.seconds > least)
      queue_.push({found.seconds, family, turned});
    else if (found.fits())
      take(family, turned);
    else if (!fastest)
      advance_family(family, turned, least);
    else if (can_be)
      begin(family, least);
    else
      end(family, SearchOutcome::refused, turned);
  }

  void take(std::size_t family, const Turned& turned) {
    end(family, SearchOutcome::fits, turned);
    result_.best.push_back(result_.fates[family].asked);
  }

  void push_successors(std::size_t family, double seconds) {
    for (std::size_t other = 0; other < families_.size(); ++other)
      if (families_[other].after == family) queue_.push({seconds, other, unturned(other)});
  }

  /// Checks whether a family fits at all, and skips the levels of the first knob that do not fit even with all other
  /// knobs at their last levels.
  void begin(std::size_t family, double seconds) {
    const Turned last = turned_to_the_end(family);
    if (!outcome(family, last).fits()) {
      const bool refused = !outcome(family, last).refused.empty();
      return end(family, refused ? SearchOutcome::refused : SearchOutcome::too_large, last);
    }
    state_[family] = State::begun;
    Turned first = unturned(family), other = last;
    if (!first.empty()) {
      for (other[0] = 0; other[0] < last[0] && !outcome(family, other).fits();) ++other[0];
      first[0] = other[0];
    }
    queue_.push({seconds, family, first});
    queued_[family].insert(first);
  }

  void advance_family(std::size_t family, const Turned& turned, double seconds) {
    const Turned last = turned_to_the_end(family);
    for (std::size_t knob = 0; knob < turned.size(); ++knob) {
      Turned next = turned;
      if (++next[knob] > last[knob] || !queued_[family].insert(next).second) continue;
      queue_.push({seconds, family, std::move(next)});
    }
  }

  /// Records an undecided family as slower, with a lower bound on its time.
  void leave(std::size_t family, const Turned& turned, double least) {
    if (state_[family] == State::done) return;
    state_[family] = State::done;
    result_.fates[family] = {SearchOutcome::slower, {family, turned, {.seconds = least}}};
  }

  std::span<const Family> families_;
  std::size_t keep_;
  FunctionRef<Outcome(std::size_t, const Turned&)> ask_;
  std::vector<std::map<Turned, Outcome>> known_;  ///< outcomes of the evaluated configurations of each family
  std::vector<std::set<Turned>> queued_;          ///< configurations of each family that were queued
  std::vector<State> state_;                      ///< state of each family
  std::priority_queue<Entry> queue_;
  SearchResult result_;
};

}  // namespace

SearchResult search(std::span<const Family> families, std::size_t keep,
                    FunctionRef<Outcome(std::size_t family, const Turned& turned)> ask) {
  for (std::size_t family = 0; family < families.size(); ++family) {
    require(families[family].after.value_or(0) <= family, "a family is after one that is later in the list");
    for (const int levels : families[family].levels) require(levels >= 1, "a knob has no level");
  }
  return Search(families, keep, ask).run();
}

}  // namespace fsdp::plan
