// SPDX-License-Identifier: Apache-2.0
#include "wrapped_names.hpp"

#include <algorithm>
#include <array>
#include <set>
#include <string_view>
#include <utility>

#include <tessera/fsdp/core/error.hpp>

namespace fsdp::checkpoint {
namespace {

/// A part of a name, and who writes it.
struct Wrapper {
  std::string_view part, writer;
};
/// Parts that are no part of a model's own names, wherever they stand.
constexpr std::array inner = {Wrapper{"_orig_mod.", "torch.compile"},
                              Wrapper{"_fsdp_wrapped_module.", "FullyShardedDataParallel"},
                              Wrapper{"_checkpoint_wrapped_module.", "checkpointed activations"}};
/// Other known prefixes.
constexpr std::array outer = {Wrapper{"module.", "DistributedDataParallel"}, Wrapper{"base_model.model.", "PEFT"},
                              Wrapper{"language_model.", "the text part of a larger model"}};

/// A change of prefixes.
struct Change {
  std::string removed;  ///< before names, without the inner parts
  std::string added;    ///< before the names that the model has behind it

  friend auto operator<=>(const Change&, const Change&) = default;
};

/// Returns where a part stands in a name, behind a dot or at the beginning; npos if nowhere.
std::size_t place_of(std::string_view part, std::string_view name) {
  std::size_t at = name.find(part);
  while (at != name.npos && at > 0 && name[at - 1] != '.') at = name.find(part, at + 1);
  return at;
}

std::string without_inner(std::string name) {
  for (const Wrapper& wrapper : inner)
    for (std::size_t at = 0; (at = place_of(wrapper.part, name)) != name.npos;) name.erase(at, wrapper.part.size());
  return name;
}

/// Returns the changes to try: every prefix that all names have, and those between the model's first name and the first
/// stored one that ends like it.
std::set<Change> changes(std::span<const std::string> names, const std::string& first) {
  std::string common = names.front();
  for (const std::string& name : names)
    common.resize(static_cast<std::size_t>(std::ranges::mismatch(common, name).in1 - common.begin()));
  std::set<Change> all = {{}};
  for (std::size_t dot = 0; (dot = common.find('.', dot)) != common.npos;) all.insert({common.substr(0, ++dot), ""});
  const std::size_t own = first.find('.') + 1;  // behind the model's first prefix
  for (const std::size_t at : {std::size_t{0}, own}) {
    const std::string_view end = std::string_view(first).substr(at);
    const auto found = std::ranges::find_if(names, [&](const std::string& name) {
      return name.ends_with(end) && (name.size() == end.size() || name[name.size() - end.size() - 1] == '.');
    });
    if (found != names.end()) all.insert({found->substr(0, found->size() - end.size()), first.substr(0, at)});
  }
  return all;
}

std::string counted(std::size_t count, std::size_t all) {
  return count == all ? message("all ", all, " names") : message(count, " of ", all, " names");
}

/// Returns as text what a stored name has and `name` lacks: " begin with module. (DistributedDataParallel)". `prefix`:
/// what is removed in front, apart from the inner parts.
std::string removed_text(const std::string& stored, const std::string& name, const std::string& prefix) {
  const bool at_front = stored.ends_with(name);
  std::string parts = at_front ? stored.substr(0, stored.size() - name.size()) : prefix, writers;
  const auto look = [&](const auto& wrappers, const std::string& text, bool named) {
    for (const Wrapper& wrapper : wrappers) {
      if (place_of(wrapper.part, text) == text.npos) continue;
      if (!named) parts += (parts.empty() ? "" : " and ") + std::string(wrapper.part);
      writers += (writers.empty() ? " (" : ", ") + std::string(wrapper.writer);
    }
  };
  look(outer, at_front ? parts : prefix, true);
  look(inner, stored, at_front);
  return message(at_front ? " begin with " : " contain ", parts, writers, writers.empty() ? "" : ")");
}

}  // namespace

NameDifferences differences(std::span<const std::string> names, std::span<const NamedShape> expected,
                            const IgnoredName& ignored) {
  NameDifferences all;
  const std::set<std::string_view> present(names.begin(), names.end());
  std::set<std::string_view> known;
  for (const NamedShape& tensor : expected) {
    known.insert(tensor.name);
    if (!present.contains(tensor.name)) all.missing.push_back(tensor.name);
  }
  for (const std::string& name : names)
    if (!known.contains(name) && !(ignored && ignored(name))) all.unknown.push_back(name);
  return all;
}

std::optional<WrappedNames> wrapped_names(const WeightFiles& files, std::span<const NamedShape> expected,
                                          const IgnoredName& ignored) {
  std::vector<std::string> stored;
  for (const TensorInfo* const tensor : files.tensors()) stored.push_back(tensor->name);
  const NameDifferences plain = differences(stored, expected, ignored);
  if (plain.missing.empty() || stored.empty()) return std::nullopt;
  std::set<std::string_view> known;
  for (const NamedShape& tensor : expected) known.insert(tensor.name);
  std::vector<std::string> bare;
  for (const std::string& name : stored) bare.push_back(without_inner(name));

  std::optional<WrappedNames> best;
  for (const Change& change : changes(bare, expected.front().name)) {
    std::vector<std::string> names;
    std::size_t removed = 0, added = 0;
    std::string text;
    for (std::size_t i = 0; i < bare.size(); ++i) {
      std::string name = bare[i].substr(bare[i].starts_with(change.removed) ? change.removed.size() : 0);
      if (name.size() < stored[i].size() && removed++ == 0) text = removed_text(stored[i], name, change.removed);
      if (!known.contains(name) && known.contains(change.added + name)) ++added, name.insert(0, change.added);
      names.push_back(std::move(name));
    }
    NameDifferences left = differences(names, expected, ignored);
    const std::size_t least = best ? best->left.missing.size() : plain.missing.size();
    if (left.missing.size() >= least || std::set(names.begin(), names.end()).size() < names.size()) continue;
    best = WrappedNames{.cause = removed > 0 ? counted(removed, names.size()) + text : "", .names = {}, .left = left};
    if (added > 0)
      best->cause += removed > 0 ? " instead of " + change.added
                                 : message(counted(added, names.size()), " lack ", change.added,
                                           ", as in a file of the model without its head");
    for (std::size_t i = 0; i < names.size(); ++i) best->names.emplace(stored[i], names[i]);
  }
  return best;
}

}  // namespace fsdp::checkpoint
