// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/checkpoint/listing.hpp>

#include <algorithm>
#include <cstddef>
#include <set>
#include <utility>

#include <tessera/fsdp/core/error.hpp>

namespace fsdp::checkpoint {
namespace {

constexpr std::size_t most_listed = 10;
std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), most_listed); ++i) text += (i == 0 ? "" : ", ") + names[i];
  if (names.size() > most_listed) text += " and " + std::to_string(names.size() - most_listed) + " more";
  return text;
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
  std::vector<std::string> missing, unknown;
  std::set<std::string> names;
  for (const NamedShape& tensor : expected) {
    names.insert(tensor.name);
    const TensorInfo* stored = files.find(tensor.name);
    if (stored == nullptr) {
      missing.push_back(tensor.name);
      continue;
    }
    require<InputError>(stored->shape == tensor.shape, path, ": tensor \"", tensor.name, "\" has shape ",
                        shape_text(stored->shape), " where the model has ", shape_text(tensor.shape));
    require<InputError>(is_weight_type(stored->dtype), path, ": tensor \"", tensor.name, "\" is ", stored->dtype,
                        "; weights must be F32, BF16, F16 or F64");
  }
  for (const TensorInfo* const tensor : files.tensors())
    if (!names.contains(tensor->name) && !(ignored && ignored(tensor->name))) unknown.push_back(tensor->name);
  const auto tensors = [](std::size_t count) { return message(count, count == 1 ? " tensor" : " tensors"); };
  require<InputError>(missing.empty(), path, ": lacks ", tensors(missing.size()), " of the model: ", listed(missing),
                      unknown.empty() ? "" : "; and has unknown ones: ", listed(unknown));
  require<InputError>(unknown.empty(), path, ": has ", tensors(unknown.size()),
                      " that the model lacks: ", listed(unknown));
}

}  // namespace fsdp::checkpoint
