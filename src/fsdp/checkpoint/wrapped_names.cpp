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

/// A part that a wrapper adds to names, and the program that writes it.
struct Wrapper {
  std::string_view part, writer;
};
/// Parts that never belong to a model's own names, at any position in a name.
constexpr std::array inner = {Wrapper{"_orig_mod.", "torch.compile"},
                              Wrapper{"_fsdp_wrapped_module.", "FullyShardedDataParallel"},
                              Wrapper{"_checkpoint_wrapped_module.", "checkpointed activations"}};
/// Other known wrappers, whose parts are prefixes.
constexpr std::array outer = {Wrapper{"module.", "DistributedDataParallel"}, Wrapper{"base_model.model.", "PEFT"},
                              Wrapper{"language_model.", "the text part of a larger model"}};

/// A change of the prefix of all names.
struct Change {
  std::string removed;  ///< prefix to remove from stored names, after the parts in `inner` are removed
  std::string added;    ///< prefix to add to names that exist in the model only with it

  friend auto operator<=>(const Change&, const Change&) = default;
};

/// Returns the position of a part in a name, at the beginning or after a dot; npos if it does not occur there.
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

/// Returns the changes to try: the removal of each prefix that all names share, and the change from the prefix of the
/// first stored name with the same ending as the model's first name to the prefix of that name.
std::set<Change> changes(std::span<const std::string> names, const std::string& first) {
  std::string common = names.front();
  for (const std::string& name : names)
    common.resize(static_cast<std::size_t>(std::ranges::mismatch(common, name).in1 - common.begin()));
  std::set<Change> all = {{}};
  for (std::size_t dot = 0; (dot = common.find('.', dot)) != common.npos;) all.insert({common.substr(0, ++dot), ""});
  const std::size_t own = first.find('.') + 1;  // length of the first prefix of the model's name
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

/// Returns a text about the parts that were removed from a stored name to get `name`: " begin with module.
/// (DistributedDataParallel)". `prefix`: the removed prefix, without the parts in `inner`.
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
