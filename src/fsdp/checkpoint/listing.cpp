// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/checkpoint/listing.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include <tessera/fsdp/core/dtype.hpp>
#include <tessera/fsdp/core/error.hpp>

#include "manifest.hpp"

namespace fsdp::checkpoint {
namespace {

/// Names that are expected but absent, and names that are present but unknown.
struct NameDifferences {
  std::vector<std::string> missing, unknown;
};
using IgnoredName = std::function<bool(const std::string&)>;

/// The mapping from the names in a file to the model's names, if they differ because of a wrapper: torch.compile,
/// DistributedDataParallel, a larger model, or a file of the model without its head.
struct WrappedNames {
  /// Cause of the differences, as a part of a sentence: "all 12 names begin with ..."; empty without a mapping.
  std::string cause = {};
  std::map<std::string, std::string> names = {};  ///< names in the model by stored name
  NameDifferences left = {};                      ///< differences that remain after the mapping
};

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

/// Returns the change of prefixes that leaves the fewest differences; no mapping if no name is missing, or if no change
/// reduces the number of missing names.
WrappedNames wrapped_names(const WeightFiles& files, std::span<const NamedShape> expected, const IgnoredName& ignored) {
  std::vector<std::string> stored;
  for (const TensorInfo* const tensor : files.tensors()) stored.push_back(tensor->name);
  WrappedNames best{.left = differences(stored, expected, ignored)};
  if (best.left.missing.empty() || stored.empty()) return best;
  std::set<std::string_view> known;
  for (const NamedShape& tensor : expected) known.insert(tensor.name);
  std::vector<std::string> bare;
  for (const std::string& name : stored) bare.push_back(without_inner(name));

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
    if (left.missing.size() >= best.left.missing.size() || std::set(names.begin(), names.end()).size() < names.size())
      continue;
    best = {.cause = removed > 0 ? counted(removed, names.size()) + text : "", .left = std::move(left)};
    if (added > 0)
      best.cause += removed > 0 ? " instead of " + change.added
                                : message(counted(added, names.size()), " lack ", change.added,
                                          ", as in a file of the model without its head");
    for (std::size_t i = 0; i < names.size(); ++i) best.names.emplace(stored[i], names[i]);
  }
  return best;
}

constexpr std::size_t most_listed = 10;
std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), most_listed); ++i) text += (i == 0 ? "" : ", ") + names[i];
  if (names.size() > most_listed) text += " and " + std::to_string(names.size() - most_listed) + " more";
  return text;
}

/// Returns a number rounded to the element type `dtype`.
float rounded(float value, const std::string& dtype) {
  if (dtype == "BF16") return static_cast<float>(bf16(value));
  if (dtype == "F16") return static_cast<float>(f16(value));
  return value;
}

/// Bitwise comparison, so that NaN equals itself; in addition, 0 equals -0.
bool equal(float a, float b) { return a == b || std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b); }

/// Throws InputError unless tensor `copy` has the same values as tensor `original`; both must be in `files`. Numbers of
/// different types are equal if the wider one, rounded to the narrower type, equals the narrower one. Reads both in
/// pieces, and stops at the first difference.
void require_copy(const WeightFiles& files, const std::string& copy, const std::string& original) {
  const TensorInfo& a = *files.find(copy);
  const TensorInfo& b = *files.find(original);
  const std::string file = files.path().string();
  const std::string then =
      message("; the config ties them, so that one would be dropped. Set \"tie_word_embeddings\" to ",
              "false in config.json to use both, or remove ", copy, " from the file");
  require<InputError>(a.shape == b.shape, file, ": ", copy, " has shape ", shape_text(a.shape), " and ", original,
                      " has ", shape_text(b.shape), then);
  std::vector<float> first, second;
  for (std::int64_t begin = 0; begin < a.elements; begin += piece_elements) {
    const std::int64_t count = std::min(piece_elements, a.elements - begin);
    first.resize(static_cast<std::size_t>(count));
    second.resize(static_cast<std::size_t>(count));
    files.read_range(copy, begin, count, first.data());
    files.read_range(original, begin, count, second.data());
    for (std::size_t i = 0; i < first.size(); ++i)
      require<InputError>(equal(rounded(first[i], b.dtype), rounded(second[i], a.dtype)), file, ": ", copy, "[",
                          begin + static_cast<std::int64_t>(i), "] is ", first[i], " and ", original, "[",
                          begin + static_cast<std::int64_t>(i), "] is ", second[i], then);
  }
}

std::optional<std::string> why_ignored(const Listing& listing, const std::string& name) {
  return listing.ignored ? listing.ignored(name) : std::nullopt;
}

/// Warns about the tensors that the listing ignores. Throws InputError for an ignored tensor that must be a copy of
/// another tensor and is not.
void check_ignored(const WeightFiles& weights, const Listing& listing, const Warn& warn) {
  for (const TensorInfo* const tensor : weights.tensors()) {
    const auto why = why_ignored(listing, tensor->name);
    if (!why) continue;
    if (const auto original = listing.copied ? listing.copied(tensor->name) : std::nullopt)
      require_copy(weights, tensor->name, *original);
    if (warn && !why->empty()) warn(message(weights.path().string(), ": ", tensor->name, " is ignored, ", *why));
  }
}

}  // namespace

Listing listing_of(std::span<const Parameter> parameters, std::string config, const ConfigValues& values,
                   bool (*may_change)(const std::string& name)) {
  Listing listing{.config = std::move(config)};
  for (const Parameter& parameter : parameters) {
    const auto extents = parameter.shape.extents.begin();
    listing.parameters.push_back({parameter.name, {extents, extents + parameter.shape.rank}, parameter.adapter});
  }
  for (const ConfigValue& value : values)
    if (!may_change(value.name)) listing.values.push_back(value);
  return listing;
}

void check_tensors(const WeightFiles& files, std::span<const NamedShape> expected,
                   const std::function<bool(const std::string&)>& ignored) {
  const std::string path = files.path().string();

  for (const NamedShape& tensor : expected) {
    const TensorInfo* stored = files.find(tensor.name);
    if (stored == nullptr) continue;
    require<InputError>(stored->shape == tensor.shape, path, ": tensor \"", tensor.name, "\" has shape ",
                        shape_text(stored->shape), " where the model has ", shape_text(tensor.shape));
    require<InputError>(is_weight_type(stored->dtype), path, ": tensor \"", tensor.name, "\" is ", stored->dtype,
                        "; weights must be F32, BF16, F16 or F64");
  }
  const auto [cause, names, left] = wrapped_names(files, expected, ignored);
  const std::string file =
      cause.empty() ? path + ":" : message(path, ": ", cause, "; without this difference the file");

  const auto tensors = [](std::size_t count) { return message(count, count == 1 ? " tensor" : " tensors"); };
  require<InputError>(left.missing.empty(), file, " lacks ", tensors(left.missing.size()),
                      " of the model: ", listed(left.missing),
                      left.unknown.empty() ? "" : "; and has unknown ones: ", listed(left.unknown));
  require<InputError>(left.unknown.empty(), file, " has ", tensors(left.unknown.size()),
                      " that the model lacks: ", listed(left.unknown));
  require<InputError>(cause.empty(), file, " has the model's tensors; rename them");
}

WeightFiles open_weights(const std::filesystem::path& folder, const Listing& listing,
                         std::span<const NamedShape> expected, const Warn& warn,
                         const std::optional<Manifest>& manifest) {
  WeightFiles weights = manifest ? SafetensorsFile(folder / model_name, sums_for(manifest, folder / model_name))
                                 : WeightFiles::open(folder, warn);
  const auto ignored = [&](const std::string& name) { return why_ignored(listing, name).has_value(); };
  const auto [cause, names, left] = wrapped_names(weights, expected, ignored);
  if (!cause.empty() && left.missing.empty() && left.unknown.empty()) {
    weights.rename(names);
    if (warn) warn(message(weights.path().string(), ": ", cause, "; they are read by the model's names"));
  }
  check_tensors(weights, expected, ignored);
  check_ignored(weights, listing, warn);
  return weights;
}

void require_same_tensors(const std::filesystem::path& step, std::span<const NamedShape> stored,
                          std::span<const NamedShape> wanted) {
  const std::string prefix = step.string() + ": a checkpoint of another model: ";
  for (const NamedShape& tensor : wanted) {
    const auto there = std::ranges::find(stored, tensor.name, &NamedShape::name);
    require<InputError>(there != stored.end(), prefix, "it has no tensor \"", tensor.name,
                        "\", which this model has with shape ", shape_text(tensor.shape));
    require<InputError>(there->shape == tensor.shape, prefix, "tensor \"", tensor.name, "\" has shape ",
                        shape_text(there->shape), " in it and ", shape_text(tensor.shape), " in this model");
  }
  for (const NamedShape& tensor : stored)
    require<InputError>(std::ranges::find(wanted, tensor.name, &NamedShape::name) != wanted.end(), prefix,
                        "its tensor \"", tensor.name, "\" of shape ", shape_text(tensor.shape),
                        " is not in this model");
}

}  // namespace fsdp::checkpoint
