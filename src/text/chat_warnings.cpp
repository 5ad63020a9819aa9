// SPDX-License-Identifier: Apache-2.0
/// @file
/// Warns of special tokens that a chat template writes and the tokenizer does not have.
#include <set>
#include <string_view>

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

/// Returns a rendered sample conversation: the first of the samples that the template accepts.
std::string sample(const ChatFormat& format) {
  const std::string question = chat_message("user", "x"), answer = chat_message("assistant", "y");
  for (const std::string& messages : {"[" + question + "," + answer + "," + question + "]", "[" + question + "]"}) {
    try {
      return format.prompt(messages);
    } catch (const InputError&) {  // errors are reported when the template is used
    }
  }
  return {};
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
  for (const std::string& mark : marks_in(sample(*this)))
    if (!tokenizer_.id_of(mark)) missing += (missing.empty() ? "" : ", ") + mark;
  if (!missing.empty())
    warnings.push_back(message(name(), " writes ", missing, ", which is no token of ", file_.string(),
                               ": each becomes several; take the model's own template, or --chat-template plain"));
  return warnings;
}

}  // namespace fsdp::text
