// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/checkpoint/listing.hpp>

#include <algorithm>
#include <cstddef>
#include <utility>

#include <tessera/fsdp/core/error.hpp>

#include "wrapped_names.hpp"

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
  std::vector<std::string> names;
  for (const TensorInfo* const tensor : files.tensors()) names.push_back(tensor->name);
  for (const NamedShape& tensor : expected) {
    const TensorInfo* stored = files.find(tensor.name);
    if (stored == nullptr) continue;
    require<InputError>(stored->shape == tensor.shape, path, ": tensor \"", tensor.name, "\" has shape ",
                        shape_text(stored->shape), " where the model has ", shape_text(tensor.shape));
    require<InputError>(is_weight_type(stored->dtype), path, ": tensor \"", tensor.name, "\" is ", stored->dtype,
                        "; weights must be F32, BF16, F16 or F64");
  }
  const auto wrapped = wrapped_names(files, expected, ignored);
  const NameDifferences left = wrapped ? wrapped->left : differences(names, expected, ignored);
  const std::string file =
      wrapped ? message(path, ": ", wrapped->cause, "; without this difference the file") : path + ":";
  const auto tensors = [](std::size_t count) { return message(count, count == 1 ? " tensor" : " tensors"); };
  require<InputError>(left.missing.empty(), file, " lacks ", tensors(left.missing.size()),
                      " of the model: ", listed(left.missing),
                      left.unknown.empty() ? "" : "; and has unknown ones: ", listed(left.unknown));
  require<InputError>(left.unknown.empty(), file, " has ", tensors(left.unknown.size()),
                      " that the model lacks: ", listed(left.unknown));
  require<InputError>(!wrapped, file, " has the model's tensors; rename them");
}

}  // namespace fsdp::checkpoint
