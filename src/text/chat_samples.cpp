// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a chat template writes in a sample conversation: special tokens that the tokenizer does not have, and the end
/// of an answer.
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/text/chat.hpp>

namespace fsdp::text {
namespace {

/// Returns the substrings of a text that look like special tokens: "<|im_end|>", and DeepSeek's tokens with wide bars.
std::set<std::string> marks_in(std::string_view text) {
  constexpr std::size_t longest = 64;
  std::set<std::string> marks;
  for (const auto& [begin, end] : {std::pair<std::string_view, std::string_view>{"<|", "|>"}, {"<\uff5c", "\uff5c>"}}) {
    for (std::size_t at = text.find(begin); at != text.npos; at = text.find(begin, at + 1)) {
      const std::size_t name = at + begin.size(), close = text.find(end, name);
      if (close == text.npos || close - at > longest) continue;
      if (text.substr(name, close - name).find_first_of("<> \t\r\n") != text.npos) continue;
      marks.emplace(text.substr(at, close + end.size() - at));
    }
  }
  return marks;
}

/// Returns the rendered sample conversation: an answer between two questions, or a question if `answer` is empty;
/// nothing if the template refuses it.
std::optional<std::string> sample(const ChatFormat& format, std::string_view answer) {
  std::string messages = chat_message("user", "x");
  if (!answer.empty()) messages += "," + chat_message("assistant", answer) + "," + messages;
  try {
    return format.prompt("[" + messages + "]");
  } catch (const InputError&) {  // errors are reported when the template is used
    return std::nullopt;
  }
}

/// Returns the token that a template writes after an answer, such as "<|im_end|>"; empty if it writes none.
std::string text_behind_answers(const ChatFormat& format) {
  constexpr std::string_view mark = "tessera";
  const std::string with = sample(format, mark).value_or("");
  const std::size_t at = with.rfind(mark);
  if (at == with.npos) return {};
  const std::size_t begin = with.find_first_not_of(" \n", at + mark.size());
  if (begin == with.npos || with[begin] != '<') return {};
  const std::size_t end = with.find('>', begin);
  return end == with.npos ? "" : with.substr(begin, end + 1 - begin);
}

}  // namespace

std::vector<std::string> ChatFormat::warnings() const {
  std::vector<std::string> warnings;
  for (const char* key : {"bos_token", "eos_token"}) {
    const bool has_own = built_in_ && std::string_view(key) == "bos_token";  // built-in templates work without it
    const bool asked = end_token_ == "none" && std::string_view(key) == "eos_token";
    if (!template_.mentions(key) || has_own || asked) continue;
    const auto found = tokens_.find(key);
    if (found == tokens_.end()) {
      warnings.push_back(message(name(), " uses ", key, ", which nothing beside ", file_.string(),
                                 " names: it writes nothing there; name one in special_tokens_map.json",
                                 std::string_view(key) == "eos_token" ? " or by --end-token" : ""));
    } else if (!tokenizer_.id_of(found->second)) {
      warnings.push_back(message(name(), " uses ", key, ", \"", found->second, "\", which is no token of ",
                                 file_.string(), ": it becomes several"));
    }
  }
  std::string missing;
  std::optional<std::string> text = sample(*this, "y");
  if (!text) text = sample(*this, "");
  for (const std::string& mark : marks_in(text.value_or("")))
    if (!tokenizer_.id_of(mark)) missing += (missing.empty() ? "" : ", ") + mark;
  if (!missing.empty())
    warnings.push_back(message(name(), " writes ", missing, ", which is no token of ", file_.string(),
                               ": each becomes several; take the model's own template, or --chat-template plain"));
  return warnings;
}

AnswerEnd answer_end(const ChatFormat& format) {
  AnswerEnd end{.text = text_behind_answers(format)};
  std::vector<std::string> names = {end.text};
  const auto eos = format.special_tokens().find("eos_token");
  if (eos != format.special_tokens().end()) names.push_back(eos->second);
  for (const std::string& name : names)
    if (const std::optional<TokenId> id = format.tokenizer().id_of(name)) end.tokens.push_back(*id);
  return end;
}

}  // namespace fsdp::text
