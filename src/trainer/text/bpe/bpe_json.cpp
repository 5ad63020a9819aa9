// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string_view>

#include "../json_part.hpp"

namespace fsdp::text {
namespace {

std::vector<BpeFile::Token> read_vocabulary(const JsonPart& part) {
  const JsonPart vocabulary = part.object("vocab");
  std::vector<BpeFile::Token> tokens;
  tokens.reserve(vocabulary.value().size());
  for (const auto& [name, value] : vocabulary.value().get_ref<const nlohmann::json::object_t&>()) {
    const std::optional<std::int32_t> id = value_as<std::int32_t>(value);
    if (!id)
      part.refuse("gives token \"", shortened(name), "\" the id ", shortened(value.dump()),
                  "; ids are whole numbers of 0 to ", largest_id);
    tokens.push_back({.name = name, .id = static_cast<TokenId>(*id)});
  }
  std::sort(tokens.begin(), tokens.end(), [](const BpeFile::Token& a, const BpeFile::Token& b) { return a.id < b.id; });
  for (std::size_t i = 1; i < tokens.size(); ++i)
    if (tokens[i].id == tokens[i - 1].id)
      part.refuse("gives the id ", tokens[i].id, " to \"", shortened(tokens[i - 1].name), "\" and to \"",
                  shortened(tokens[i].name), "\"; each token needs its own");
  return tokens;
}

/// "a b", or ["a", "b"], the same for all merges of a file.
std::vector<BpeFile::Pair> read_merges(const JsonPart& part) {
  const nlohmann::json& list = part.array("merges");
  std::vector<BpeFile::Pair> merges;
  merges.reserve(list.size());
  for (const nlohmann::json& merge : list) {
    const auto unclear = [&] {
      part.refuse("has the merge ", shortened(merge.dump()), "; merges are \"a b\", or [\"a\", \"b\"]");
    };
    if (merge.is_array()) {
      if (merge.size() != 2 || !merge[0].is_string() || !merge[1].is_string()) unclear();
      merges.push_back({merge[0].get_ref<const std::string&>(), merge[1].get_ref<const std::string&>()});
      continue;
    }
    if (!merge.is_string()) unclear();
    const std::string_view text = merge.get_ref<const std::string&>();
    if (text.starts_with("#version")) continue;
    const std::size_t space = text.find(' ');
    if (space == text.npos || text.find(' ', space + 1) != text.npos) unclear();
    merges.push_back({text.substr(0, space), text.substr(space + 1)});
  }
  return merges;
}

}  // namespace

BpeFile read_bpe(const JsonPart& part) {
  if (const std::string type = part.has("type") ? part.type() : "BPE"; type != "BPE")
    part.refuse("\"", type, "\" is not supported; there is BPE");
  if (part.has("dropout") && part.value().at("dropout") != 0) part.refuse("has a dropout; set it to null");
  for (const char* const affix : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (part.has(affix) && !part.text(affix).empty())
      part.refuse("has a ", affix, ", \"", shortened(part.text(affix)), "\", which is not supported");
  BpeFile file{.vocabulary = read_vocabulary(part), .merges = read_merges(part), .unknown = {}};
  if (part.has("unk_token")) file.unknown = part.text("unk_token");
  file.byte_fallback = part.flag("byte_fallback", false);
  file.fuse_unknown = part.flag("fuse_unk", false);
  file.ignore_merges = part.flag("ignore_merges", false);
  return file;
}

std::vector<AddedToken> read_added_tokens(const nlohmann::json& root, const std::string& source) {
  std::vector<AddedToken> tokens;
  if (!root.contains("added_tokens") || root.at("added_tokens").is_null()) return tokens;
  const nlohmann::json& list = root.at("added_tokens");
  require<InputError>(list.is_array(), source, ": \"added_tokens\" is not a list [...]");
  for (const nlohmann::json& entry : list) {
    const JsonPart part(entry, "added token " + std::to_string(tokens.size()), source);
    tokens.push_back({.id = static_cast<TokenId>(part.number("id", largest_id)),
                      .content = part.text("content"),
                      .pattern = {},
                      .single_word = part.flag("single_word"),
                      .lstrip = part.flag("lstrip"),
                      .rstrip = part.flag("rstrip"),
                      .normalized = part.flag("normalized"),
                      .special = part.flag("special")});
    if (tokens.back().content.empty()) part.refuse("has no content");
  }
  return tokens;
}

}  // namespace fsdp::text
