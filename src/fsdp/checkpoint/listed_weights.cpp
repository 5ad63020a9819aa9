// SPDX-License-Identifier: Apache-2.0
#include "listed_weights.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/fsdp/core/dtype.hpp>
#include <tessera/fsdp/core/error.hpp>

#include "../core/json/strict_json.hpp"
#include "wrapped_names.hpp"

namespace fsdp::checkpoint {
namespace {

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

std::shared_ptr<const FileSums> sums_for(const std::optional<Manifest>& manifest, const std::filesystem::path& file) {
  return manifest ? std::make_shared<const FileSums>(sums_in(*manifest, file)) : nullptr;
}

void check_config(const std::filesystem::path& folder, const std::optional<Manifest>& manifest) {
  const std::filesystem::path config = folder / config_name;
  if (manifest) check_content(*manifest, config, read_small_file(config, most_config_bytes));
}

WeightFiles open_weights(const std::filesystem::path& folder, const Listing& listing,
                         std::span<const NamedShape> expected, const Warn& warn,
                         const std::optional<Manifest>& manifest) {
  WeightFiles weights = manifest ? SafetensorsFile(folder / model_name, sums_for(manifest, folder / model_name))
                                 : WeightFiles::open(folder, warn);
  const auto ignored = [&](const std::string& name) { return why_ignored(listing, name).has_value(); };
  if (const auto wrapped = wrapped_names(weights, expected, ignored); wrapped && wrapped->left.none()) {
    weights.rename(wrapped->names);
    if (warn) warn(message(weights.path().string(), ": ", wrapped->cause, "; they are read by the model's names"));
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
