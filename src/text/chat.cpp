// SPDX-License-Identifier: Apache-2.0
#include <fsdp/text/chat.hpp>

#include <algorithm>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include <fsdp/core/error.hpp>
#include <fsdp/core/hash.hpp>
#include <fsdp/text/tokenizer_config.hpp>

#include "../models/strict_json.hpp"
#include "built_in_templates.hpp"

namespace fsdp::text {
namespace {

using Json = nlohmann::ordered_json;

constexpr JsonLimits row_limits{.depth = 64, .values = 1'000'000, .array = 100'000, .text = 100'000'000};
constexpr std::int64_t most_template_bytes = 1'000'000;

NamedText template_of(const std::filesystem::path& tokenizer, const std::string& name) {
  if (std::optional<std::string> known = built_in_template(name))
    return {.name = "the template " + name, .text = *std::move(known)};
  if (name != "auto") return {.name = name, .text = read_small_file(name, most_template_bytes)};
  std::optional<NamedText> own = chat_template_beside(tokenizer);
  require<InputError>(own.has_value(), tokenizer.string(), " has no chat template beside it, neither ",
                      "chat_template.jinja nor in tokenizer_config.json; say --chat-template chatml, llama3, plain or ",
                      "a file");
  return *std::move(own);
}

void check_messages(const Json& messages, std::string_view name, const std::string& source) {
  require<InputError>(messages.is_array() && !messages.empty(), source, ": \"", name, "\" is no list of messages");
  for (const Json& message : messages) {
    const bool has_role = message.is_object() && message.contains("role") && message.at("role").is_string();
    require<InputError>(has_role, source, ": a message of \"", name, "\" has no \"role\"");
  }
}

bool is_answer(const Json& message) { return message.at("role") == "assistant"; }

/// Maps places in a text to its tokens. Ask for places in ascending order.
class Borders {
 public:
  Borders(const Tokenizer& tokenizer, std::string_view text, const std::vector<TokenId>& whole)
      : tokenizer_(tokenizer), text_(text), whole_(whole) {}

  struct Border {
    std::size_t tokens = 0;  ///< number of tokens before the place that do not depend on the text after it
    bool exact = false;      ///< no token spans the place
  };

  Border at(std::size_t place) {
    Border found = compared_from(byte_, token_, place);
    if (!found.exact && byte_ > 0) found = compared_from(0, 0, place);
    if (found.exact) byte_ = place, token_ = found.tokens;
    return found;
  }

 private:
  /// Encodes the text from an exact border up to the place, and compares its tokens with those of the whole text.
  Border compared_from(std::size_t byte, std::size_t token, std::size_t place) const {
    std::vector<TokenId> part;
    const std::string_view text = text_.substr(byte, place - byte);
    byte == 0 ? tokenizer_.append_encoded(text, false, part) : tokenizer_.append_following(text, part);
    const auto first = whole_.begin() + static_cast<std::ptrdiff_t>(token);
    const auto same = std::mismatch(part.begin(), part.end(), first, whole_.end()).first - part.begin();
    return {.tokens = token + static_cast<std::size_t>(same), .exact = same == std::ssize(part)};
  }

  const Tokenizer& tokenizer_;
  std::string_view text_;
  const std::vector<TokenId>& whole_;
  std::size_t byte_ = 0, token_ = 0;  // the last exact border; the text before it is not encoded again
};

ChatTokens tokens_of(const Tokenizer& tokenizer, std::string_view text, const std::vector<TextRange>& answers) {
  ChatTokens tokens{.ids = tokenizer.encode(text, false)};
  tokens.answers.resize(tokens.ids.size());
  Borders borders(tokenizer, text, tokens.ids);
  for (const TextRange& answer : answers) {
    if (answer.begin == answer.end) continue;
    const std::size_t begin = borders.at(answer.begin).tokens;
    const Borders::Border last = borders.at(answer.end);
    const bool shared = !last.exact && last.tokens < tokens.ids.size();  // a token spans the answer's end
    for (std::size_t i = begin; i < last.tokens + (shared ? 1 : 0); ++i) tokens.answers[i] = true;
  }
  return tokens;
}

/// Returns the token that a template writes after an answer, such as "<|im_end|>"; empty if it writes none.
std::string text_behind_answers(const ChatFormat& format) {
  const std::string mark = "tessera";
  std::string with;
  try {
    with = format.prompt("[" + chat_message("user", "x") + "," + chat_message("assistant", mark) + "," +
                         chat_message("user", "x") + "]");
  } catch (const InputError&) {
    return {};  // the template refuses this conversation; answers end at the model's end token
  }
  const std::size_t at = with.rfind(mark);
  if (at == with.npos) return {};
  const std::size_t begin = with.find_first_not_of(" \n", at + mark.size());
  if (begin == with.npos || with[begin] != '<') return {};
  const std::size_t end = with.find('>', begin);
  return end == with.npos ? "" : with.substr(begin, end + 1 - begin);
}

}  // namespace

/// A parsed and checked line of JSONL.
struct ChatFormat::Row {
  Json messages = Json::array();
  Json tools = nullptr;
  Json more = Json::object();  // chat_template_kwargs
  std::size_t given = 0;       // number of messages in the prompt, whose answers are not learned
  bool asks = false;           // add_generation_prompt
  bool is_text = false;
  std::string prompt = {}, completion = {};

  static Row of(const Json& root, const std::string& source);
};

ChatFormat::Row ChatFormat::Row::of(const Json& root, const std::string& source) {
  require<InputError>(root.is_object(), source, ": is not a JSON object");
  Row row;
  if (root.contains("messages")) {
    check_messages(root.at("messages"), "messages", source);
    row.messages = root.at("messages");
  } else {
    require<InputError>(root.contains("prompt") && root.contains("completion"), source,
                        ": has neither \"messages\" nor \"prompt\" and \"completion\"");
    const Json &prompt = root.at("prompt"), &completion = root.at("completion");
    row.is_text = prompt.is_string();
    require<InputError>(row.is_text == completion.is_string(), source,
                        ": one of \"prompt\" and \"completion\" is a text, and the other is none");
    if (row.is_text) {
      row.prompt = prompt;
      row.completion = completion;
      return row;
    }
    check_messages(prompt, "prompt", source);
    check_messages(completion, "completion", source);
    row.messages = prompt;
    row.given = prompt.size();
    for (const Json& message : completion) row.messages.push_back(message);
  }
  if (root.contains("tools")) row.tools = root.at("tools");
  if (root.contains("chat_template_kwargs")) row.more = root.at("chat_template_kwargs");
  require<InputError>(row.tools.is_null() || row.tools.is_array(), source, ": \"tools\" is no list");
  require<InputError>(row.more.is_object(), source, ": \"chat_template_kwargs\" is no object");
  return row;
}

std::tm training_clock() {
  std::tm clock{};
  clock.tm_year = 2024 - 1900;
  clock.tm_mon = 6;
  clock.tm_mday = 26;
  clock.tm_wday = 5;
  clock.tm_yday = 207;
  return clock;
}

std::tm clock_now() {
  const std::time_t now = std::time(nullptr);
  std::tm clock{};
  localtime_r(&now, &clock);
  return clock;
}

ChatFormat::ChatFormat(const std::filesystem::path& tokenizer, const std::string& chat_template, const std::tm& clock)
    : tokenizer_(Tokenizer::read(tokenizer)),
      source_(template_of(tokenizer, chat_template)),
      template_(ChatTemplate::parse(source_.text, source_.name)),
      tokens_(special_tokens_beside(tokenizer)),
      clock_(clock) {}

std::uint64_t ChatFormat::digest() const {
  std::uint64_t digest = hashed(hash_seed, source_.text);
  for (const auto& [name, token] : tokens_) digest = hashed(hashed(digest, name), token);
  return digest;
}

RenderedChat ChatFormat::rendered(const Row& row) const {
  Json variables = row.more;
  for (const auto& [name, token] : tokens_) variables[name] = token;
  variables["messages"] = row.messages;
  variables["tools"] = row.tools;
  variables["documents"] = nullptr;
  variables["add_generation_prompt"] = row.asks;
  return template_.render(variables.dump(), clock_);
}

std::string ChatFormat::prompt(std::string_view messages) const {
  return rendered({.messages = parse_strict_ordered(messages, "messages", row_limits), .asks = true}).text;
}

std::vector<TextRange> ChatFormat::added_by_turns(const Row& row, const std::string& whole,
                                                  const std::string& source) const {
  std::vector<TextRange> answers;
  for (std::size_t i = row.given; i < row.messages.size(); ++i) {
    if (!is_answer(row.messages[i])) continue;
    Row part = row;
    part.messages.erase(part.messages.begin() + static_cast<std::ptrdiff_t>(i) + 1, part.messages.end());
    const std::string after = i + 1 == row.messages.size() ? whole : rendered(part).text;
    part.messages.erase(part.messages.size() - 1);
    part.asks = true;
    const std::string before = rendered(part).text;
    require<InputError>(
        whole.starts_with(after) && after.starts_with(before), source, ": ", name(), " writes message ", i + 1,
        whole.starts_with(after) ? " otherwise when it asks for it" : " otherwise once others follow it",
        ", so that what the model is to write there is not known; give conversations of one answer, or another "
        "--chat-template, such as chatml");
    answers.push_back({before.size(), after.size()});
  }
  return answers;
}

ChatTokens ChatFormat::of_texts(const Row& row) const {
  const auto end = tokens_.find("eos_token");
  std::string text = row.prompt + row.completion;
  if (end != tokens_.end() && !row.completion.ends_with(end->second)) text += end->second;
  ChatTokens tokens = tokens_of(tokenizer_, text, {{row.prompt.size(), text.size()}});
  const std::vector<TokenId> first = tokenizer_.frame().before;
  tokens.ids.insert(tokens.ids.begin(), first.begin(), first.end());
  tokens.answers.insert(tokens.answers.begin(), first.size(), false);
  return tokens;
}

ChatTokens ChatFormat::of_messages(const Row& row, const std::string& source) const {
  RenderedChat chat = [&] {
    try {
      return rendered(row);
    } catch (const InputError& error) {
      throw InputError(message(source, ": ", error.what()));
    }
  }();
  if (!template_.marks_answers()) return tokens_of(tokenizer_, chat.text, added_by_turns(row, chat.text, source));
  const auto prompt_end = row.messages.begin() + static_cast<std::ptrdiff_t>(row.given);
  const auto given =
      std::min<std::ptrdiff_t>(std::count_if(row.messages.begin(), prompt_end, is_answer), std::ssize(chat.answers));
  chat.answers.erase(chat.answers.begin(), chat.answers.begin() + given);
  return tokens_of(tokenizer_, chat.text, chat.answers);
}

ChatTokens ChatFormat::encode(std::string_view json, const std::string& source) const {
  const Row row = Row::of(parse_strict_ordered(json, source, row_limits), source);
  ChatTokens tokens = row.is_text ? of_texts(row) : of_messages(row, source);
  const auto first_target =
      tokens.answers.begin() + (tokens.answers.empty() ? 0 : 1);  // the first token is never a target
  require<InputError>(std::find(first_target, tokens.answers.end(), true) != tokens.answers.end(), source,
                      ": holds no answer: no message of the role assistant, or an empty completion; give it one, or ",
                      "leave the line out");
  return tokens;
}

std::string chat_message(std::string_view role, std::string_view content) {
  return nlohmann::json{{"role", role}, {"content", content}}.dump(-1, ' ', false,
                                                                   nlohmann::json::error_handler_t::replace);
}

AnswerEnd answer_end(const ChatFormat& format, const std::filesystem::path& tokenizer) {
  AnswerEnd end{.text = text_behind_answers(format)};
  std::vector<std::string> names = {end.text};
  if (const std::optional<std::string> eos = end_token_beside(tokenizer)) names.push_back(*eos);
  for (const std::string& name : names)
    if (const std::optional<TokenId> id = format.tokenizer().id_of(name)) end.tokens.push_back(*id);
  return end;
}

}  // namespace fsdp::text
