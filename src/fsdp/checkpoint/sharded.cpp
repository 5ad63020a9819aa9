// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/checkpoint/sharded.hpp>

#include <random>
#include <set>
#include <span>

#include <tessera/fsdp/core/error.hpp>

namespace fsdp::checkpoint {

Listing listing_of(GroupList groups, std::span<const Parameter> statistics) {
  std::vector<Parameter> all(statistics.begin(), statistics.end());
  for (const GroupTensors* const group : groups)
    all.insert(all.end(), group->parameters().begin(), group->parameters().end());
  std::sort(all.begin(), all.end(), [](const Parameter& a, const Parameter& b) { return a.name < b.name; });
  return listing_of(all, "{}\n", {}, [](const std::string&) { return false; });
}

Checkpoint open_step(const std::filesystem::path& folder, const Listing& listing, const Warn& warn) {
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
  std::vector<NamedShape> expected = ours;  // by the names in the file
  for (NamedShape& tensor : expected)
    if (const auto found = stored.find(tensor.name); found != stored.end()) tensor.name = found->second;
  check_tensors(files, expected, [&](const std::string& name) { return dropped.contains(name); });
  for (const NamedShape& tensor : ours)  // a missing one may have the old name of another
    require<InputError>(stored.contains(tensor.name), files.path().string(), ": lacks ", tensor.name);
  return stored;
}

}  // namespace fsdp::checkpoint
