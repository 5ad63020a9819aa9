// SPDX-License-Identifier: Apache-2.0
#include <tessera/text/chat.hpp>

#include <algorithm>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/hash.hpp>

#include "../fsdp/core/json/strict_json.hpp"
#include "../fsdp/core/value_names.hpp"
#include "built_in_templates.hpp"
#include "chat_row.hpp"
#include "jinja/strings.hpp"
#include "jinja/value.hpp"

namespace fsdp::text {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t most_template_bytes = 1'000'000;
constexpr std::size_t row_steps = 5'000'000, row_steps_per_byte = 1000;  // limit of steps over all answers of a row
constexpr const char* part_mark = "tessera_part_of_content";  // key that is printed only if a part is printed whole
constexpr ValueNames<Learn::last> learn_names("all", "last");
constexpr const char* unknown_answer = ", so that what the model is to write there is not known";
constexpr std::size_t most_encoded_again = 1000;  // limit on how often a row is encoded to find its answers' tokens

NamedText template_of(const std::filesystem::path& tokenizer, const std::string& name) {
  if (std::optional<std::string> known = built_in_template(name))
    return {.name = "the template " + name, .text = *std::move(known)};
  if (name != "auto") return {.name = name, .text = read_small_file(name, most_template_bytes)};
  std::optional<NamedText> own = chat_template_beside(tokenizer);
  require<InputError>(own.has_value(), tokenizer.string(), " has no chat template beside it, neither ",
                      "chat_template.jinja nor in tokenizer_config.json; say --chat-template ", built_in_names,
                      " or a file");
  return *std::move(own);
}

/// Maps byte offsets in a text to its tokens. Query the offsets in ascending order.
class Borders {
 public:
  Borders(const Tokenizer& tokenizer, std::string_view text, const std::vector<TokenId>& whole)
      : tokenizer_(tokenizer), text_(text), whole_(whole) {}

  struct Border {
    std::size_t tokens = 0;  ///< number of tokens before the offset that do not depend on the text after it
    bool exact = false;      ///< no token spans the offset
  };

  Border at(std::size_t place) {
    Border found = compared_from(byte_, token_, place);
    if (!found.exact && byte_ > 0) found = compared_from(0, 0, place);
    if (found.exact) byte_ = place, token_ = found.tokens;
    return found;
  }

 private:
  /// Encodes the text from an exact border up to `place`, and compares the result with the tokens of the whole text.
  Border compared_from(std::size_t byte, std::size_t token, std::size_t place) {
    std::vector<TokenId> part;
    const std::string_view text = text_.substr(byte, place - byte);
    encoded_ += text.size();
    require<InputError>(encoded_ / most_encoded_again <= text_.size(), "a conversation of ", text_.size(),
                        " bytes is encoded more than ", most_encoded_again,
                        " times to find its answers' tokens; split the conversation");
    byte == 0 ? tokenizer_.append_encoded(text, false, part) : tokenizer_.append_following(text, part);
    const auto first = whole_.begin() + static_cast<std::ptrdiff_t>(token);
    const auto same = std::mismatch(part.begin(), part.end(), first, whole_.end()).first - part.begin();
    return {.tokens = token + static_cast<std::size_t>(same), .exact = same == std::ssize(part)};
  }

  const Tokenizer& tokenizer_;
  std::string_view text_;
  const std::vector<TokenId>& whole_;
  std::size_t byte_ = 0, token_ = 0;  // the last exact border; the text before it is not encoded again
  std::size_t encoded_ = 0;           // bytes encoded so far
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

/// Replaces content that is a list of text parts by the concatenation of their texts.
void join_parts(Json& message) {
  Json& content = message.at("content");
  if (!content.is_array()) return;
  std::string text;
  for (const Json& part : content) text += part.at("text").get_ref<const std::string&>();
  content = std::move(text);
}

}  // namespace

void from_text(std::string_view flag, std::string_view text, Learn& value) { value = learn_names.value(flag, text); }

std::string to_text(Learn value) { return learn_names.name(value); }

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

ChatFormat::ChatFormat(const std::filesystem::path& tokenizer, const std::string& chat_template, const std::tm& clock,
                       const std::string& end_token, Learn learn)
    : file_(tokenizer),
      tokenizer_(Tokenizer::read(tokenizer)),
      source_(template_of(tokenizer, chat_template)),
      template_(ChatTemplate::parse(source_.text, source_.name)),
      tokens_(special_tokens_beside(tokenizer)),
      end_token_(end_token),
      learn_(learn),
      built_in_(built_in_template(chat_template).has_value()),
      clock_(clock) {
  if (end_token.empty()) return;
  const std::optional<TokenId> end = end_token_of(tokenizer_, file_, tokens_, end_token);
  if (end)
    tokens_["eos_token"] = end_token;
  else
    tokens_.erase("eos_token");
}

std::uint64_t ChatFormat::digest() const {
  std::uint64_t digest = hashed(hashed(hash_seed, source_.text), end_token_);
  if (learn_ != Learn::all) digest = hashed(digest, to_text(learn_));
  for (const auto& [name, token] : tokens_) digest = hashed(hashed(digest, name), token);
  return digest;
}

RenderedChat ChatFormat::rendered(const ChatRow& row) const {
  Json variables = row.more;
  for (const auto& [name, token] : tokens_)
    if (!row.more.contains(name)) variables[name] = token;
  variables["messages"] = row.messages;
  variables["tools"] = row.tools;
  variables["documents"] = nullptr;
  variables["add_generation_prompt"] = row.asks;
  return template_.render(jinja::Value::of(variables), clock_);
}

std::string ChatFormat::prompt(std::string_view messages, std::string* missing) const {
  ChatRow row = ChatRow::asking(messages);
  join_unread_parts(row);
  std::string text = rendered(row).text;
  ChatTokens checked;
  check_parts(row, text, text.size(), {}, checked);
  if (missing != nullptr) *missing = checked.missing;
  return text;
}

void ChatFormat::join_unread_parts(ChatRow& row) const {
  const auto has_parts = [](const Json& message) { return message.at("content").is_array(); };
  if (std::ranges::none_of(row.messages, has_parts)) return;
  ChatRow marked = row;
  for (Json& message : marked.messages)
    if (has_parts(message))
      for (Json& part : message.at("content")) part[part_mark] = "";
  try {
    const std::string text = rendered(marked).text;
    if (text.find(part_mark) == std::string::npos && has_all_parts(row, text)) return;
  } catch (const InputError&) {  // the template accepts only content that is a text
  }
  for (Json& message : row.messages) join_parts(message);
}

void ChatFormat::check_parts(const ChatRow& row, std::string_view text, std::size_t front,
                             std::span<const TextRange> learned, ChatTokens& tokens) const {
  const MissingPart missing = missing_part(row, text, front, learned);
  tokens.reasoning = static_cast<std::int64_t>(missing.reasoning);
  using Kind = MissingPart::Kind;
  const std::string number = message("message ", missing.message);
  switch (missing.kind) {
    case Kind::none: return;
    case Kind::text: tokens.missing = message(name(), " does not write the text of ", number); break;
    case Kind::call:
      tokens.missing =
          template_.may_read("tool_calls")
              ? message(name(), " does not write all of the call of ", shortened(missing.name), " in ", number)
              : message(number, " calls tools, and ", name(), " has no place for calls");
      break;
    case Kind::tool:
      tokens.missing =
          template_.may_read("tools")
              ? message(name(), " does not write all of the tool ", shortened(missing.name), " before the first answer")
              : message("\"tools\" is given, and ", name(), " has no place for tools");
  }
}

std::vector<std::string> ChatFormat::unread_keys(const ChatRow& row) const {
  std::vector<std::string> unread = row.unread;
  for (const auto& [key, value] : row.more.items())
    if (!template_.mentions(key)) unread.push_back("chat_template_kwargs." + key);
  if (!template_.may_read("content")) return unread;  // the template prints whole messages, with all keys
  for (const std::string& key : row.message_keys)
    if (!template_.may_read(key)) unread.push_back("messages." + key);
  return unread;
}

TextRange ChatFormat::turn(const ChatRow& row, std::size_t i, const std::string& whole, const std::string& source,
                           std::size_t& steps) const {
  const auto text_of = [&](const ChatRow& part) {
    RenderedChat chat = prefixed(source + ": ", [&] { return rendered(part); });
    steps += chat.steps;
    require<InputError>(steps <= row_steps + row_steps_per_byte * whole.size(), source, ": ", name(),
                        " takes more than ", row_steps + row_steps_per_byte * whole.size(), " steps to write ",
                        row.messages.size(), " messages up to each answer; split the conversation");
    return std::move(chat.text);
  };
  ChatRow part = row;
  part.messages.erase(part.messages.begin() + static_cast<std::ptrdiff_t>(i) + 1, part.messages.end());
  const std::string after = i + 1 == row.messages.size() ? whole : text_of(part);
  part.messages.erase(part.messages.size() - 1);
  part.asks = true;
  const std::string before = text_of(part);
  require<InputError>(whole.starts_with(after), source, ": ", name(), " writes message ", row.number(i),
                      " otherwise once others follow it", unknown_answer,
                      "; learn the last answer alone by --learn last, mark earlier answers by \"weight\": 0, or give ",
                      "another --chat-template, such as qwen3 or chatml");
  require<InputError>(after.starts_with(before), source, ": ", name(), " writes message ", row.number(i),
                      " otherwise when it asks for it", unknown_answer,
                      "; give another --chat-template, such as qwen3 or chatml");
  return {before.size(), after.size()};
}

std::vector<TextRange> ChatFormat::learned_ranges(const ChatRow& row, const RenderedChat& chat,
                                                  const std::string& source) const {
  std::vector<TextRange> learned;
  std::vector<std::size_t> answers;
  std::size_t steps = 0;
  for (std::size_t i = 0; i < row.messages.size(); ++i) {
    if (is_answer(row.messages[i])) answers.push_back(i);
    if (!template_.marks_answers() && row.learned[i]) learned.push_back(turn(row, i, chat.text, source, steps));
  }
  if (!template_.marks_answers()) return learned;
  const bool one_each = answers.size() == chat.answers.size();
  if (!one_each) learned = chat.answers;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    const bool learns = row.learned[answers[i]];
    if (one_each && learns) learned.push_back(chat.answers[i]);
    if (one_each || learns) continue;
    const TextRange left = turn(row, answers[i], chat.text, source, steps);  // any number of blocks per message
    std::erase_if(learned, [&](const TextRange& block) { return block.begin < left.end && left.begin < block.end; });
  }
  return learned;
}

ChatTokens ChatFormat::of_texts(const ChatRow& row, const std::string& source) const {
  const std::optional<TokenId> end =
      prefixed(source + ": ", [&] { return end_token_of(tokenizer_, file_, tokens_, end_token_); });
  const std::string end_text = end_token_ == "none" ? "" : tokens_.at("eos_token");
  std::string text = row.prompt + row.completion;
  if (!row.completion.ends_with(end_text)) text += end_text;
  ChatTokens tokens = tokens_of(tokenizer_, text, {{row.prompt.size(), text.size()}});
  if (end && (tokens.ids.empty() || tokens.ids.back() != *end)) {  // the end token's text does not encode to it
    tokens = tokens_of(tokenizer_, row.prompt + row.completion,
                       {{row.prompt.size(), row.prompt.size() + row.completion.size()}});
    tokens.ids.push_back(*end);
    tokens.answers.push_back(true);
  }
  tokens.empty = jinja::strip(row.completion).empty() ? 1 : 0;
  const std::vector<TokenId> first = tokenizer_.frame().before;
  tokens.ids.insert(tokens.ids.begin(), first.begin(), first.end());
  tokens.answers.insert(tokens.answers.begin(), first.size(), false);
  return tokens;
}

ChatTokens ChatFormat::of_messages(ChatRow& row, const std::string& source) const {
  const RenderedChat chat = prefixed(source + ": ", [&] {
    join_unread_parts(row);
    return rendered(row);
  });
  const bool blocks = template_.marks_answers();
  const std::vector<TextRange> answers = learned_ranges(row, chat, source);
  const std::vector<TextRange>& first = blocks ? chat.answers : answers;
  ChatTokens tokens = tokens_of(tokenizer_, chat.text, answers);
  const bool one_each = !blocks || std::ranges::count_if(row.messages, is_answer) == std::ssize(chat.answers);
  check_parts(row, chat.text, first.empty() ? chat.text.size() : first.front().begin,
              one_each ? std::span(answers) : std::span<const TextRange>(), tokens);
  require<InputError>(!built_in_ || tokens.missing.empty(), source, ": ", tokens.missing,
                      "; take the model's own template",
                      name() == "the template qwen3" ? "" : ", or --chat-template qwen3, which writes tools and calls");
  for (std::size_t i = 0; i < row.messages.size(); ++i)
    tokens.empty += row.learned[i] && is_empty(row.messages[i], tokens.reasoning == 0);
  return tokens;
}

ChatTokens ChatFormat::encode(std::string_view json, const std::string& source) const {
  ChatRow row = ChatRow::of(json, source);
  if (learn_ == Learn::last) {
    std::size_t last = row.messages.size();
    while (last > 0 && !is_answer(row.messages[last - 1])) --last;
    for (std::size_t i = 0; i + 1 < last; ++i) row.learned[i] = false;
    if (last > 0) row.messages.erase(row.messages.begin() + static_cast<std::ptrdiff_t>(last), row.messages.end());
  }
  const bool marked = std::ranges::any_of(row.messages, is_answer) && std::ranges::count(row.learned, true) == 0;
  ChatTokens tokens = row.is_text ? of_texts(row, source) : of_messages(row, source);
  tokens.unread = unread_keys(row);
  const auto first_target =
      tokens.answers.begin() + (tokens.answers.empty() ? 0 : 1);  // the first token is never a target
  require<InputError>(std::find(first_target, tokens.answers.end(), true) != tokens.answers.end(), source,
                      marked ? message(": holds no answer that is learned: ",
                                       learn_ == Learn::last ? "the mark of its last one says so, and --learn is last"
                                                             : "its marks say so of each",
                                       "; leave the line out")
                             : ": holds no answer: no message of the role assistant, or an empty completion; give it "
                               "one, or leave the line out");
  return tokens;
}

std::string chat_message(std::string_view role, std::string_view content) {
  return json_text(nlohmann::json{{"role", role}, {"content", content}});
}

}  // namespace fsdp::text
