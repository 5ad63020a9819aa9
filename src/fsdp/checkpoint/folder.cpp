// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/checkpoint/folder.hpp>

#include <algorithm>
#include <system_error>

#include <tessera/fsdp/checkpoint/inspect.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/identity.hpp>

#include "../core/paths.hpp"
#include "manifest.hpp"
#include "step_folders.hpp"
#include "trainer_state.hpp"

namespace fsdp::checkpoint {
namespace {

using Opened = Checkpoint::Contents;

/// Throws InputError unless every tensor of the optimizer's file is a state "name.state" of a parameter, and either has
/// the parameter's shape or is the bytes of a codec.
void check_states(const SafetensorsFile& file, std::span<const NamedShape> parameters) {
  std::map<std::string_view, const NamedShape*> by_name;
  for (const NamedShape& parameter : parameters) by_name[parameter.name] = &parameter;
  for (const TensorInfo& tensor : file.tensors()) {
    const auto found = by_name.find(std::string_view(tensor.name).substr(0, tensor.name.rfind('.')));
    require<InputError>(found != by_name.end(), file.path().string(), ": tensor \"", tensor.name,
                        "\" is the state of no parameter of config.json");
    if (tensor.shape.size() == 1 && tensor.dtype == "U8" && !codec_of(file, tensor).empty()) continue;
    require<InputError>(tensor.shape == found->second->shape, file.path().string(), ": tensor \"", tensor.name,
                        "\" has shape ", shape_text(tensor.shape), "; its parameter has ",
                        shape_text(found->second->shape));
  }
}

/// Reads the folder's manifest. Returns nothing, with a warning, for a checkpoint of a format version without
/// manifests.
std::optional<Manifest> manifest_of(const std::filesystem::path& path, const Warn& warn) {
  std::optional<Manifest> manifest = read_manifest(path);
  if (manifest) return manifest;
  require<InputError>(!read_trainer_file(path / trainer_name, {}).has_manifest, path.string(),
                      ": its manifest.json: no such file; it was removed, or the folder was copied in part. --model ",
                      path.string(), " starts a new run from its weights");
  if (warn)
    warn(message(path.string(),
                 ": has no manifest.json, as checkpoints of earlier versions; it is read, but whether it "
                 "is what was written cannot be verified"));
  return manifest;
}

Opened open_complete(const std::filesystem::path& path, const ReadListing& read, const Warn& warn) {
  const std::filesystem::path states = path / optimizer_name;
  require<InputError>(path_exists(states), path.string(), ": holds no optimizer states (", states.string(),
                      ": no such file), which resuming needs; --model ", path.string(),
                      " starts a new run from its weights");
  const std::optional<Manifest> manifest = manifest_of(path, warn);
  const TrainerFile trainer = read_trainer_file(path / trainer_name, manifest);
  check_config(path, manifest);
  Listing listing = read(path);
  WeightFiles weights = open_weights(path, listing, listing.parameters, warn, manifest);
  Opened opened{.listing = std::move(listing),
                .weights = std::move(weights),
                .optimizer = SafetensorsFile(path / optimizer_name, sums_for(manifest, path / optimizer_name)),
                .optimizer_name = trainer.optimizer,
                .state = trainer.state};
  const std::vector<NamedShape>& parameters = opened.listing.parameters;
  require<InputError>(hash_of(parameters) == trainer.sizes_hash, path.string(),
                      ": config.json is not the one that trainer.json was written with");
  check_states(opened.optimizer, parameters);
  const std::int64_t named = step_of(std::filesystem::absolute(path).lexically_normal().filename().string());
  require<InputError>(named < 0 || named == trainer.state.step, path.string(), ": is the folder of step ", named,
                      ", and its trainer.json is of step ", trainer.state.step, "; give the folder its own name back");
  return opened;
}

/// Opens the newest complete and undamaged checkpoint. Returns nothing if there is none; `why` then describes the
/// problem of the newest one.
std::optional<std::pair<std::filesystem::path, Opened>> newest_undamaged(const std::filesystem::path& dir,
                                                                         const ReadListing& read, const Warn& warn,
                                                                         std::string& why) {
  const auto skip = [&](const std::filesystem::path& step, const InputError& error) {
    if (why.empty()) why = error.what();
    if (warn) warn(message("skipping ", step.string(), ": ", error.what()));
  };
  for (const std::filesystem::path& candidate : steps_in(dir, warn)) {
    try {
      return std::pair(candidate, open_complete(candidate, read, warn));
    } catch (const FileError& error) {
      if (!error.absent()) throw;
      skip(candidate, error);
    } catch (const InputError& broken) {
      skip(candidate, broken);
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::filesystem::path> find_latest(const std::filesystem::path& dir, const ReadListing& read,
                                                 const Warn& warn) {
  try {
    std::string why;
    const auto newest = newest_undamaged(dir, read, warn, why);
    return newest ? std::optional(newest->first) : std::nullopt;
  } catch (const FileError& error) {
    if (!error.absent()) throw;
    return std::nullopt;
  }
}

bool holds_any(const std::filesystem::path& dir) { return path_exists(dir) && !steps_in(dir).empty(); }

std::vector<StepFolder> step_folders_in(const std::filesystem::path& dir) {
  std::vector<StepFolder> steps;
  if (!path_exists(dir)) return steps;
  for (const std::filesystem::path& path : steps_in(dir)) {
    steps.push_back({.path = path, .step = step_of(path.filename().string())});
    try {
      const TrainerState state = read_trainer_file(path / trainer_name, {}).state;
      if (const auto found = state.run.find(run_identity); found != state.run.end()) steps.back().run = found->second;
    } catch (const InputError&) {
      continue;  // resuming from this checkpoint will report the problem
    }
  }
  return steps;
}

std::string folder_identity(const std::filesystem::path& folder) {
  constexpr FileSample weights{.whole = 1 << 20, .blocks = 4};  // only a sample, since every rank computes this digest
  std::map<std::string, std::string> lines;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string kind = entry.path().extension().string();
    std::error_code gone;
    if ((kind != ".json" && kind != ".safetensors") || !entry.is_regular_file(gone)) continue;
    const std::string name = entry.path().filename().string();
    lines[name] = message(entry.path().string(), " = ", entry.file_size(gone), " bytes, digest ",
                          digest_text(digest_of_file(entry.path(), kind == ".json" ? FileSample{} : weights)), "\n");
  }
  require<InputError>(!error, folder.string(), ": cannot be listed: ", error.message());
  std::string text;
  for (const auto& [name, line] : lines) text += line;
  return text;
}

void agree_on_folder(const comm::Ranks& ranks, const std::filesystem::path& folder) {
  comm::agree_on_opened(ranks, comm::together(ranks, "what was opened", [&] { return folder_identity(folder); }));
}

Checkpoint Checkpoint::open(std::filesystem::path path, const ReadListing& read, const Warn& warn) {
  std::error_code error;
  const bool folder = std::filesystem::is_directory(path, error);
  require<InputError>(folder, path.string(), ": no such checkpoint",
                      error && error != std::errc::no_such_file_or_directory ? ": " + error.message() : std::string());
  const bool step_folder =
      path_exists(path / config_name) || path_exists(path / trainer_name) || step_of(path.filename().string()) >= 0;
  if (step_folder) return {path, open_complete(path, read, warn)};
  std::string why;
  auto newest = newest_undamaged(path, read, warn, why);
  require<InputError>(newest.has_value(), path.string(), ": holds no complete checkpoint", why.empty() ? "" : "; ",
                      why);
  return {std::move(newest->first), std::move(newest->second)};
}

void Checkpoint::check_same_model(const Listing& model) const {
  require_same_tensors(path_, contents_.listing.parameters, model.parameters);
  for (const ConfigValue& value : model.values) {
    const auto& theirs = contents_.listing.values;
    const auto found = std::ranges::find(theirs, value.name, &ConfigValue::name);
    require<InputError>(
        found != theirs.end() && *found == value, path_.string(), ": a checkpoint of another model: ", value.name,
        " is ", found == theirs.end() ? "unknown" : text_of(*found), " in it and ", text_of(value), " in this model");
  }
}

void Checkpoint::check_same_optimizer(const OptimizerStates& states) const {
  require<InputError>(contents_.optimizer_name == states.optimizer, path_.string(), ": was trained with the optimizer ",
                      contents_.optimizer_name, ", this run's is ", states.optimizer, "; resume with ",
                      contents_.optimizer_name, ", or start a new run from its weights by --model ", path_.string());
  for (const auto& [name, of_parameter] : states.of)
    for (const StoredState& state : of_parameter) {
      const TensorInfo* const stored = contents_.optimizer.find(name + "." + state.name);
      require<InputError>(stored != nullptr || was_frozen(name), path_.string(), ": has no state \"", state.name,
                          "\" of \"", name, "\", which this run's ", states.optimizer,
                          " keeps; resume with the constants that it was trained with");
      if (stored != nullptr) require_format(*stored, state);
    }
}

void Checkpoint::require_format(const TensorInfo& stored, const StoredState& state) const {
  const std::string found = codec_of(contents_.optimizer, stored), wanted = state.format->text();
  const std::string moments = found.substr(0, found.find_first_of("u/"));  // of AdamW, whose states are named so
  const std::string flag = stored.name.find(".exp_avg") == std::string::npos ? "" : " (--moments " + moments + ")";
  require<InputError>(found == wanted, path_.string(), ": has the state \"", stored.name, "\" as ", found,
                      ", and this run's is ", wanted, "; resume with the constants that it was trained with", flag,
                      ", or start a new run from its weights by --model ", path_.string());
  const auto parameter =
      std::ranges::find(contents_.listing.parameters, stored.name.substr(0, stored.name.rfind('.')), &NamedShape::name);
  const std::int64_t elements = elements_of(parameter->shape);
  require<InputError>(stored.bytes == state.format->bytes(elements), path_.string(), ": the state \"", stored.name,
                      "\" has ", stored.bytes, " bytes, and ", elements, " elements as ", found, " have ",
                      state.format->bytes(elements), "; the file was changed");
}

void Checkpoint::read_weight(const std::string& name, std::int64_t begin, std::int64_t count, float* out) const {
  contents_.weights.read_range(name, begin, count, out);
}

void Checkpoint::read_state(const std::string& name, std::string_view state, std::int64_t first,
                            std::span<std::byte> out) const {
  const std::string stored = name + "." + std::string(state);
  if (was_frozen(name) && contents_.optimizer.find(stored) == nullptr) {
    std::ranges::fill(out, std::byte{0});
    return;
  }
  contents_.optimizer.read_bytes(contents_.optimizer.at(stored), first, out);
}

}  // namespace fsdp::checkpoint
