// SPDX-License-Identifier: Apache-2.0
#include "known_faults.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>

#include <nlohmann/json.hpp>

#include <tessera/fsdp/core/error.hpp>

#include "../fsdp/core/json/strict_json.hpp"

namespace fsdp::text {
namespace {

// Source of the families, the versions, the size and the right expression: _patch_mistral_regex of transformers 5.24.
constexpr std::array<std::string_view, 5> families = {"mistral", "mistral3", "voxtral", "ministral", "pixtral"};
constexpr std::int64_t most_of_other_vocabularies = 100'000;
constexpr std::string_view right_expression =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)"
    R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view any_letters = R"([^\r\n\p{L}\p{N}]?\p{L}+)";

/// Returns whether the config.json next to a tokenizer belongs to a Mistral model and was written by a version of
/// `transformers` before 5; false if it cannot be read.
bool is_old_mistral(const std::filesystem::path& file) {
  try {
    const std::filesystem::path path = file.parent_path() / "config.json";
    const nlohmann::json config = parse_strict(read_small_file(path, most_config_bytes), path.string());
    const std::string version = value_at<std::string>(config, "transformers_version").value_or("0");
    int major = 0;
    std::from_chars(version.data(), version.data() + version.size(), major);
    return major < 5 &&
           std::ranges::find(families, value_at<std::string>(config, "model_type").value_or("")) != families.end();
  } catch (const InputError&) {
    return false;
  }
}

/// Returns the first expression that a byte-level pre-tokenizer splits text by; empty if there is none.
std::string_view expression_of(const PreTokenizer& pre_tokenizer) {
  if (!pre_tokenizer.byte_level()) return {};
  for (const PreTokenizer::Step& step : pre_tokenizer.steps) {
    if (const auto* const split = std::get_if<Split>(&step)) return split->pattern.text();
    if (const auto* const bytes = std::get_if<ByteLevel>(&step); bytes != nullptr && !bytes->pattern.empty())
      return bytes->pattern.front().text();
  }
  return {};
}

}  // namespace

std::optional<std::string> mistral_fault(const std::filesystem::path& file, const PreTokenizer& pre_tokenizer,
                                         std::int64_t vocabulary) {
  const std::string_view expression = expression_of(pre_tokenizer);
  const bool joins = expression.find(any_letters) != expression.npos;  // does not split at a change of case
  if (expression.empty() || expression == right_expression) return std::nullopt;
  if ((!joins && vocabulary <= most_of_other_vocabularies) || !is_old_mistral(file)) return std::nullopt;
  return message(file.string(), ": text is split by the expression ", expression, ", which exports of mistral models ",
                 "by transformers before version 5 have in error; the models were trained with ", right_expression,
                 ". Token ids are those of the file; write the second expression into it to have the model's ",
                 "(transformers: fix_mistral_regex=True)");
}

}  // namespace fsdp::text
