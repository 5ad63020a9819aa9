// SPDX-License-Identifier: Apache-2.0
#include "post_processor.hpp"

#include <algorithm>

namespace fsdp::text {
namespace {

constexpr std::size_t most_special_ids = 10'000, most_texts = 16;

std::vector<TokenId> ids_of(const Keys& part, const std::string& token) {
  const Keys tokens = part.object("special_tokens");
  if (!tokens.has(token.c_str()))
    part.refuse("\"TemplateProcessing\" uses \"", shortened(token), "\", which its special_tokens do not hold");
  std::vector<TokenId> ids;
  for (const nlohmann::json& value : tokens.object(token.c_str()).array("ids")) {
    const std::optional<std::int32_t> id = value_as<std::int32_t>(value);
    if (!id)
      part.refuse("\"TemplateProcessing\" has the id ", shortened(value.dump()), "; ids are whole numbers of 0 to ",
                  largest_id);
    ids.push_back(static_cast<TokenId>(*id));
  }
  return ids;
}

/// Reads a template. Updates and limits the totals over all templates, `texts` and `ids`, since a sequence of templates
/// could double a text repeatedly.
std::vector<TemplatePiece> read_template(const Keys& part, std::size_t& texts, std::size_t& ids) {
  std::vector<TemplatePiece> pieces;
  std::size_t texts_here = 0;
  for (const nlohmann::json& entry : part.array("single")) {
    const Keys piece(entry, part.source(), part.name() + "'s template");
    if (piece.has("Sequence")) {
      const std::string which = piece.object("Sequence").text("id");
      if (which != "A") part.refuse("\"TemplateProcessing\" asks for a second text in the template of a single one");
      pieces.push_back({.text = true, .ids = {}});
      ++texts_here;
    } else {
      pieces.push_back({.text = false, .ids = ids_of(part, piece.object("SpecialToken").text("id"))});
      ids += 1 + pieces.back().ids.size();
      if (ids > most_special_ids) part.refuse("adds more than ", most_special_ids, " special tokens to a text");
    }
    if (texts * texts_here > most_texts) part.refuse("repeats a text more than ", most_texts, " times");
  }
  texts *= std::max<std::size_t>(texts_here, 1);
  return pieces;
}

}  // namespace

void apply(const PostProcessor& processor, bool special, std::size_t begin, std::vector<TokenId>& ids) {
  const auto first = static_cast<std::ptrdiff_t>(begin);
  for (const std::vector<TemplatePiece>& pieces : processor) {
    const std::vector<TokenId> text(ids.begin() + first, ids.end());
    ids.resize(begin);
    for (const TemplatePiece& piece : pieces) {
      if (!piece.text && !special) continue;
      const std::vector<TokenId>& part = piece.text ? text : piece.ids;
      ids.insert(ids.end(), part.begin(), part.end());
    }
  }
}

PostProcessor read_post_processor(const Keys& stage) {
  PostProcessor processor;
  std::size_t texts = 1, ids = 0;
  for (const Keys& step : steps_of(stage, "processors")) {
    const std::string type = step.text("type");
    if (type == "TemplateProcessing") {
      processor.push_back(read_template(step, texts, ids));
    } else if (type != "ByteLevel") {  // ByteLevel only changes offsets
      step.refuse("\"", type, "\" is not supported; there are TemplateProcessing, ByteLevel and Sequence");
    }
  }
  return processor;
}

}  // namespace fsdp::text
