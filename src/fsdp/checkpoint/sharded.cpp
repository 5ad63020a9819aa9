// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/checkpoint/sharded.hpp>

#include <random>
#include <span>

#include <tessera/fsdp/core/error.hpp>

namespace fsdp::checkpoint {
namespace {

constexpr std::size_t most_named = 10;  // in one message

std::string list_of(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), most_named); ++i) text += (i == 0 ? "" : ", ") + names[i];
  return names.size() > most_named ? message(text, " and ", names.size() - most_named, " more") : text;
}

}  // namespace

ModelListing listing_of(GroupList groups, std::span<const Parameter> statistics) {
  std::vector<Parameter> all(statistics.begin(), statistics.end());
  for (const GroupTensors* const group : groups)
    all.insert(all.end(), group->parameters().begin(), group->parameters().end());
  std::sort(all.begin(), all.end(), [](const Parameter& a, const Parameter& b) { return a.name < b.name; });
  return listing_of(all, "{}\n", {}, [](const std::string&) { return false; });
}

Checkpoint open_step(const std::filesystem::path& folder, const ModelListing& listing, const Warn& warn) {
  std::string newest;
  const Warn remember = [&](const std::string& text) {
    if (newest.empty()) newest = text;
    if (warn) warn(text);
  };
  try {
    return Checkpoint::open(
        folder, [&](const std::filesystem::path&) { return listing; }, remember);
  } catch (const InputError& error) {
    if (newest.empty()) throw;
    throw InputError(message(error.what(), "; ", newest));
  }
}

std::uint64_t agreed_id(const comm::Ranks& ranks) {
  std::uint64_t id = 0;
  if (ranks.rank() == 0) id = (std::uint64_t{std::random_device()()} << 32) | std::random_device()();
  ranks.broadcast(std::as_writable_bytes(std::span(&id, 1)), 0, {"id of a checkpoint"});
  return id;
}

std::map<std::string, std::string> stored_names(const WeightFiles& files, GroupList groups, const Rename& rename) {
  std::map<std::string, std::string> stored;
  std::vector<std::string> unknown, missing;
  std::map<std::string, const Parameter*> ours;
  for (const GroupTensors* const group : groups)
    for (const Parameter& parameter : group->parameters()) ours.emplace(parameter.name, &parameter);
  for (const TensorInfo* const tensor : files.tensors()) {
    const std::string name = rename ? rename(tensor->name) : tensor->name;
    if (name.empty()) continue;
    const auto found = ours.find(name);
    if (found == ours.end()) {
      unknown.push_back(tensor->name);
      continue;
    }
    const Shape& shape = found->second->shape;
    const std::vector<std::int64_t> extents(shape.extents.begin(), shape.extents.begin() + shape.rank);
    require<InputError>(tensor->shape == extents, files.path().string(), ": tensor \"", tensor->name, "\" has shape ",
                        shape_text(tensor->shape), ", and \"", name, "\" has ", shape_text(extents));
    require<InputError>(stored.emplace(name, tensor->name).second, files.path().string(), ": two tensors are \"", name,
                        "\" by their new names");
  }
  for (const auto& [name, parameter] : ours)
    if (!stored.contains(name)) missing.push_back(name);
  require<InputError>(missing.empty() && unknown.empty(), files.path().string(), ": ",
                      missing.empty() ? "" : "lacks " + list_of(missing),
                      missing.empty() || unknown.empty() ? "" : ", and ",
                      unknown.empty() ? "" : "has " + list_of(unknown) + ", which is no parameter; rename or drop it");
  return stored;
}

}  // namespace fsdp::checkpoint
