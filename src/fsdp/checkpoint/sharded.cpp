// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/checkpoint/sharded.hpp>

#include <random>
#include <set>

#include <tessera/fsdp/core/error.hpp>

#include "manifest.hpp"

namespace fsdp::checkpoint {
namespace {

/// A step whose weights belong to another model. Not an InputError, since these make `open` fall back to an older step.
struct OtherModel : Error {
  using Error::Error;
};

}  // namespace

Listing listing_of(GroupList groups, std::span<const Parameter> statistics) {
  std::vector<Parameter> all(statistics.begin(), statistics.end());
  for (const GroupTensors* const group : groups)
    all.insert(all.end(), group->parameters().begin(), group->parameters().end());
  std::sort(all.begin(), all.end(), [](const Parameter& a, const Parameter& b) { return a.name < b.name; });
  return listing_of(all, "{}\n", {}, [](const std::string&) { return false; });
}

Checkpoint open_step(const std::filesystem::path& folder, const Listing& listing, const Warn& warn) {
  const ReadListing same_model = [&](const std::filesystem::path& step) {
    const std::filesystem::path file = step / model_name;
    const SafetensorsFile weights(file, sums_for(read_manifest(step), file));
    std::vector<NamedShape> stored;
    for (const TensorInfo& tensor : weights.tensors()) stored.push_back({tensor.name, tensor.shape});
    try {
      require_same_tensors(step, stored, listing.parameters);
    } catch (const InputError& difference) {
      throw OtherModel(difference.what());
    }
    return listing;
  };
  try {
    return Checkpoint::open(folder, same_model, warn);
  } catch (const OtherModel& other) {
    throw InputError(other.what());
  }
}

void require_same_classes(const Checkpoint& from, int step_classes) {
  const auto classes = std::max<std::ptrdiff_t>(std::ssize(from.state().taken), 1);
  require<InputError>(classes == step_classes, from.path().string(), ": counts the steps of ", classes,
                      classes == 1 ? " class" : " classes", " of groups, and these orders make ", step_classes,
                      "; restore it with the orders that it was saved with");
}

void require_values(std::span<const std::string> without) {
  require(without.empty(), "save: ", without.empty() ? "" : without.front(),
          without.size() == 1 ? " has" : " and others have", " no values yet; initialize, load or set them first");
}

std::uint64_t agreed_id(const comm::Ranks& ranks) {
  std::uint64_t id = 0;
  if (ranks.rank() == 0) id = (std::uint64_t{std::random_device()()} << 32) | std::random_device()();
  ranks.broadcast(std::as_writable_bytes(std::span(&id, 1)), 0, {"id of a checkpoint"});
  return id;
}

std::map<std::string, std::string> stored_names(const WeightFiles& files, GroupList groups, const Rename& rename) {
  std::map<std::string, std::string> stored;
  std::set<std::string> dropped;
  for (const TensorInfo* const tensor : files.tensors()) {
    const std::string name = rename ? rename(tensor->name) : tensor->name;
    if (name.empty())
      dropped.insert(tensor->name);
    else
      require<InputError>(stored.emplace(name, tensor->name).second, files.path().string(), ": two tensors are \"",
                          name, "\" by their new names");
  }
  const std::vector<NamedShape> ours = listing_of(groups).parameters;
  std::vector<NamedShape> expected = ours;  // parameters under their names in the file
  for (NamedShape& tensor : expected)
    if (const auto found = stored.find(tensor.name); found != stored.end()) tensor.name = found->second;
  check_tensors(files, expected, [&](const std::string& name) { return dropped.contains(name); });
  for (const NamedShape& tensor : ours)  // a missing tensor may be stored under its old name
    require<InputError>(stored.contains(tensor.name), files.path().string(), ": lacks ", tensor.name);
  return stored;
}

}  // namespace fsdp::checkpoint
