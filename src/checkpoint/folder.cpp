// SPDX-License-Identifier: Apache-2.0
#include <fsdp/checkpoint/folder.hpp>

#include <algorithm>
#include <charconv>
#include <functional>
#include <map>
#include <string_view>
#include <system_error>
#include <utility>

#include <fsdp/core/error.hpp>

#include "../models/strict_json.hpp"
#include "trainer_state.hpp"

namespace fsdp::checkpoint {
namespace {

/// The step of a finished checkpoint's folder name; -1 for any other name, a temporary one among them.
std::int64_t step_of(std::string_view name) {
  constexpr std::string_view prefix = "step-";
  if (!name.starts_with(prefix)) return -1;
  name.remove_prefix(prefix.size());
  std::int64_t step = -1;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  return error == std::errc() && end == name.data() + name.size() && name.size() >= 8 ? step : -1;
}

/// Everything that `Checkpoint` needs, checked.
struct Opened {
  ModelFiles model;
  SafetensorsFile optimizer;
  std::string optimizer_name;
  TrainerState state;
};

/// Every tensor of the optimizer's file is a state, "name.state", of a parameter and has its shape.
void check_states(const SafetensorsFile& file, std::span<const NamedShape> parameters) {
  std::map<std::string_view, const NamedShape*> by_name;
  for (const NamedShape& parameter : parameters) by_name[parameter.name] = &parameter;
  for (const TensorInfo& tensor : file.tensors()) {
    const auto found = by_name.find(std::string_view(tensor.name).substr(0, tensor.name.rfind('.')));
    require<InputError>(found != by_name.end(), file.path().string(), ": tensor \"", tensor.name,
                        "\" is the state of no parameter of config.json");
    require<InputError>(tensor.shape == found->second->shape, file.path().string(), ": tensor \"", tensor.name,
                        "\" has shape ", shape_text(tensor.shape), "; its parameter has ",
                        shape_text(found->second->shape));
  }
}

Opened open_complete(const std::filesystem::path& path, const ReadListing& read, const Warn& warn) {
  const TrainerFile trainer = read_trainer_file(path / "trainer.json");
  Opened opened{.model = open_model(path, read, warn),
                .optimizer = SafetensorsFile(path / "optimizer.safetensors"),
                .optimizer_name = trainer.optimizer,
                .state = trainer.state};
  const std::vector<NamedShape>& parameters = opened.model.listing.parameters;
  require<InputError>(hash_of(parameters) == trainer.sizes_hash, path.string(),
                      ": config.json is not the one that trainer.json was written with");
  check_states(opened.optimizer, parameters);
  return opened;
}

/// Finished checkpoints, newest first; the one that `latest` names comes before all.
std::vector<std::filesystem::path> candidates(const std::filesystem::path& dir) {
  std::vector<std::pair<std::int64_t, std::filesystem::path>> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(dir, error)) {
    const std::int64_t step = step_of(entry.path().filename().string());
    if (step >= 0 && entry.is_directory(error)) found.emplace_back(step, entry.path());
  }
  std::ranges::sort(found, std::greater{}, &std::pair<std::int64_t, std::filesystem::path>::first);
  std::string latest;
  if (std::filesystem::exists(dir / "latest", error)) {
    try {
      latest = read_small_file(dir / "latest", 256);
    } catch (const InputError&) {
      latest.clear();
    }
  }
  while (!latest.empty() && latest.back() == '\n') latest.pop_back();
  std::ranges::stable_sort(found, [&](const auto& a, const auto& b) {
    return a.second.filename() == latest && b.second.filename() != latest;
  });
  std::vector<std::filesystem::path> paths;
  for (auto& [step, path] : found) paths.push_back(std::move(path));
  return paths;
}

Opened open_newest(std::filesystem::path& path, const ReadListing& read, const Warn& warn) {
  std::error_code error;
  require<InputError>(std::filesystem::is_directory(path, error), path.string(), ": no such checkpoint");
  const bool step_folder = std::filesystem::exists(path / "config.json", error) ||
                           std::filesystem::exists(path / "trainer.json", error) ||
                           step_of(path.filename().string()) >= 0;
  if (step_folder) return open_complete(path, read, warn);
  for (const std::filesystem::path& candidate : candidates(path)) {
    try {
      Opened opened = open_complete(candidate, read, warn);
      path = candidate;
      return opened;
    } catch (const InputError& broken) {
      if (warn) warn(message("skipping ", candidate.string(), ": ", broken.what()));
    }
  }
  throw InputError(message(path.string(), ": holds no complete checkpoint"));
}

}  // namespace

std::optional<std::filesystem::path> find_latest(const std::filesystem::path& dir, const ReadListing& read,
                                                 const Warn& warn) {
  for (const std::filesystem::path& candidate : candidates(dir)) {
    try {
      open_complete(candidate, read, {});
      return candidate;
    } catch (const InputError& broken) {
      if (warn) warn(message("skipping ", candidate.string(), ": ", broken.what()));
    }
  }
  return std::nullopt;
}

Checkpoint Checkpoint::open(std::filesystem::path path, const ReadListing& read, const Warn& warn) {
  Opened opened = open_newest(path, read, warn);
  return {std::move(path), std::move(opened.model), std::move(opened.optimizer), std::move(opened.optimizer_name),
          opened.state};
}

void Checkpoint::check_same_model(const ModelListing& model) const {
  const std::vector<NamedShape>& stored = model_.listing.parameters;
  const std::vector<NamedShape>& wanted = model.parameters;
  const std::string prefix = path_.string() + ": a checkpoint of another model: ";
  for (const NamedShape& tensor : wanted) {
    const TensorInfo* there = model_.weights.find(tensor.name);
    const bool listed = std::ranges::any_of(stored, [&](const NamedShape& s) { return s.name == tensor.name; });
    require<InputError>(there != nullptr && listed, prefix, "it has no tensor \"", tensor.name,
                        "\", which this model has with shape ", shape_text(tensor.shape));
    require<InputError>(there->shape == tensor.shape, prefix, "tensor \"", tensor.name, "\" has shape ",
                        shape_text(there->shape), " in it and ", shape_text(tensor.shape), " in this model");
  }
  for (const NamedShape& tensor : stored)
    require<InputError>(std::ranges::any_of(wanted, [&](const NamedShape& w) { return w.name == tensor.name; }), prefix,
                        "its tensor \"", tensor.name, "\" of shape ", shape_text(tensor.shape),
                        " is not in this model");
  for (const ConfigValue& value : model.values) {
    const auto& theirs = model_.listing.values;
    const auto found = std::ranges::find(theirs, value.name, &ConfigValue::name);
    require<InputError>(found != theirs.end() && *found == value, prefix, value.name, " is ",
                        found == theirs.end() ? "unknown" : text_of(*found), " in it and ", text_of(value),
                        " in this model");
  }
}

void Checkpoint::check_same_optimizer(const OptimizerStates& states) const {
  require<InputError>(optimizer_name_ == states.optimizer, path_.string(), ": was trained with the optimizer ",
                      optimizer_name_, ", this run's is ", states.optimizer, "; resume with --optimizer ",
                      optimizer_name_, ", or start from its weights with --model ", path_.string());
  for (const auto& [name, of_parameter] : states.of)
    for (const std::string& state : of_parameter)
      require<InputError>(optimizer_.find(name + "." + state) != nullptr, path_.string(), ": has no state \"", state,
                          "\" of \"", name, "\", which this run's ", states.optimizer,
                          " keeps; resume with the constants that it was trained with");
}

void Checkpoint::read_weight(const std::string& name, std::int64_t begin, std::int64_t count, float* out) const {
  model_.weights.read_range(model_.weights.at(name), begin, count, out);
}

void Checkpoint::read_state(const std::string& name, std::string_view state, std::int64_t begin, std::int64_t count,
                            float* out) const {
  optimizer_.read_range(optimizer_.at(name + "." + std::string(state)), begin, count, out);
}

}  // namespace fsdp::checkpoint
