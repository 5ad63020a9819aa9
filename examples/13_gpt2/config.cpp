// SPDX-License-Identifier: Apache-2.0
#include "config.hpp"

#include <fstream>
#include <iterator>
#include <type_traits>
#include <utility>

#include <nlohmann/json.hpp>

#include <tessera/fsdp/core/error.hpp>

namespace gpt2 {
namespace {

using fsdp::InputError;
using fsdp::require;
using nlohmann::json;

/// Keys of config.json for which this model supports only one value.
const std::pair<const char*, json> only[] = {
    {"model_type", "gpt2"},       {"activation_function", "gelu_new"},        {"tie_word_embeddings", true},
    {"scale_attn_weights", true}, {"scale_attn_by_inverse_layer_idx", false}, {"add_cross_attention", false}};

}  // namespace

Gpt2Config Gpt2Config::parse(std::string_view text, const std::string& source) {
  const json object = json::parse(text, nullptr, false);
  require<InputError>(object.is_object(), source, ": not a JSON object");
  for (const auto& [key, value] : only)
    require<InputError>(!object.contains(key) || object.at(key) == value, source, ": \"", key,
                        "\" has another value than ", value.dump(), ", which is the only one that is supported");
  Gpt2Config config;
  visit(config, [&]<class T>(const char* name, T& value, const char*) {
    require<InputError>(object.contains(name), source, ": the key \"", name, "\" is missing");
    const json& found = object.at(name);
    require<InputError>(std::is_same_v<T, std::int64_t> ? found.is_number_integer() : found.is_number(), source, ": \"",
                        name, "\" is not a number of its kind");
    value = found.get<T>();
  });
  require<InputError>(
      !object.contains("n_inner") || object.at("n_inner").is_null() || object.at("n_inner") == config.intermediate(),
      source, ": \"n_inner\" is not 4 n_embd, which is the only width that is supported");
  try {
    config.validate();
  } catch (const InputError& error) {
    throw InputError(source + ": " + error.what());
  }
  return config;
}

Gpt2Config Gpt2Config::read(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "config.json";
  std::ifstream file(path);
  require<InputError>(file.good(), path.string(), ": cannot be opened");
  return parse(std::string(std::istreambuf_iterator<char>(file), {}), path.string());
}

std::string Gpt2Config::write() const {
  nlohmann::ordered_json object = {{"architectures", {"GPT2LMHeadModel"}}};
  for (const auto& [key, value] : only) object[key] = value;
  visit(*this, [&](const char* name, const auto& value, const char*) { object[name] = value; });
  object["n_inner"] = nullptr;
  object["n_ctx"] = n_positions;
  // Tessera trains without dropout.
  for (const char* dropout : {"attn_pdrop", "embd_pdrop", "resid_pdrop"}) object[dropout] = 0.0;
  object["torch_dtype"] = "float32";
  return object.dump(2) + "\n";
}

void Gpt2Config::validate() const {
  visit(*this, []<class T>(const char* name, const T& value, const char*) {
    require<InputError>(value > 0 && value <= T{1 << 22}, "model: ", name, " is ", value,
                        "; it must be above 0 and at most ", 1 << 22);
  });
  require<InputError>(n_embd % n_head == 0, "model: n_embd ", n_embd, " is not divisible by ", n_head, " heads");
  require<InputError>(layer_norm_epsilon <= 1e-2, "model: layer_norm_epsilon is ", layer_norm_epsilon,
                      "; it must be at most 0.01");
}

}  // namespace gpt2
