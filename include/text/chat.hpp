// SPDX-License-Identifier: Apache-2.0
/// @file
/// A tokenizer with a chat template: encodes conversations, and marks which tokens are answers.
#pragma once

#include <cstdint>
#include <ctime>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/text/chat_template.hpp>
#include <tessera/text/tokenizer.hpp>
#include <tessera/text/tokenizer_config.hpp>

namespace fsdp::text {

struct ChatRow;

/// Which answers of a conversation the model learns: all, or the last one alone.
enum class Learn : std::uint8_t { all, last };

/// Conversions for flags (tessera/trainer/flags/flag_set.hpp): all, last.
void from_text(std::string_view flag, std::string_view text, Learn& value);
std::string to_text(Learn value);

/// Tokens of one conversation.
struct ChatTokens {
  std::vector<TokenId> ids = {};
  std::vector<bool> answers = {};        ///< for each token: whether it is part of an answer, which the model learns
  std::string missing = {};              ///< the first part of the record that the template does not write; empty: none
  std::int64_t reasoning = 0;            ///< number of answers whose reasoning the template does not write
  std::int64_t empty = 0;                ///< number of learned answers without text and calls
  std::vector<std::string> unread = {};  ///< keys of the record that neither a form nor the template reads
};

/// Returns the clock for templates in training: 26 July 2024, the default date of Llama 3.1's template, so that tokens
/// do not depend on the day of the run.
std::tm training_clock();
/// Returns the present local time, for templates in a chat.
std::tm clock_now();

/// Encodes conversations. Immutable; several threads can call its functions at once.
class ChatFormat {
 public:
  /// `tokenizer`: a tokenizer.json. `chat_template`: "auto" takes the template beside the tokenizer
  /// (chat_template.jinja, or in tokenizer_config.json); "chatml", "llama3", "qwen3" and "plain" are built in; anything
  /// else is the path of a file. `clock`: the time that the template sees. `end_token`: as for end_token_of; it is the
  /// template's eos_token too. `learn`: which answers `encode` marks. Throws InputError.
  ChatFormat(const std::filesystem::path& tokenizer, const std::string& chat_template, const std::tm& clock,
             const std::string& end_token = {}, Learn learn = Learn::all);

  /// Encodes one conversation, a JSON object of one of two forms:
  /// - {"messages": [{"role", "content", ...}, ...]}, optionally with "tools", "system" and "chat_template_kwargs";
  /// - {"prompt", "completion"}, both texts or both lists of messages.
  /// Keys that are null count as absent. Content is a text or a list of text parts.
  ///
  /// Answers are the text in the template's generation blocks. For a template without such blocks, they are the text
  /// that each turn of the role assistant adds. With a completion, only the completion contains answers; one that is a
  /// text ends with the end token. A message's "weight", "train", "training" or "loss" of 0 or false makes its answer
  /// context. Throws InputError "`source`: ..." for any other form or mark, for a conversation without an answer, if no
  /// end token is known, if the template renders earlier turns differently once others follow, and if a built-in
  /// template does not write a part of the conversation. For other templates, ChatTokens::missing describes that part.
  ChatTokens encode(std::string_view json, const std::string& source) const;

  /// Renders messages, a JSON array, up to where the next answer begins. `missing`: receives the first part of them
  /// that the template does not write, as in ChatTokens; of a built-in template, too. Throws InputError.
  std::string prompt(std::string_view messages, std::string* missing = nullptr) const;

  /// The tokenizer.
  const Tokenizer& tokenizer() const { return tokenizer_; }
  const std::string& name() const { return source_.name; }  ///< of the template, for messages
  std::uint64_t digest() const;                             ///< a hash of the template and the names of special tokens
  /// Special tokens by key, such as eos_token.
  const std::map<std::string, std::string>& special_tokens() const { return tokens_; }

  /// Returns a sentence for each special token that the template writes and the tokenizer does not have.
  std::vector<std::string> warnings() const;

 private:
  ChatTokens of_texts(const ChatRow& row, const std::string& source) const;
  ChatTokens of_messages(ChatRow& row, const std::string& source) const;
  RenderedChat rendered(const ChatRow& row) const;
  /// Joins contents that are lists of text parts, unless the template goes through such lists itself.
  void join_unread_parts(ChatRow& row) const;
  /// Checks that the text has all parts of the row, and sets `missing` and `reasoning` of the tokens. `front`: where
  /// the first answer begins. `learned`: the places of those that are learned; empty if not known.
  void check_parts(const ChatRow& row, std::string_view text, std::size_t front, std::span<const TextRange> learned,
                   ChatTokens& tokens) const;
  /// Returns the keys of a row that nothing reads.
  std::vector<std::string> unread_keys(const ChatRow& row) const;
  /// Returns where message i of a row stands in `whole`. Adds the work that it takes to `steps`, which are limited.
  TextRange turn(const ChatRow& row, std::size_t i, const std::string& whole, const std::string& source,
                 std::size_t& steps) const;
  std::vector<TextRange> added_by_turns(const ChatRow& row, const std::string& whole, const std::string& source) const;
  std::vector<TextRange> learned_blocks(const ChatRow& row, const RenderedChat& chat, const std::string& source) const;

  std::filesystem::path file_;  // of the tokenizer
  Tokenizer tokenizer_;
  NamedText source_;
  ChatTemplate template_;
  std::map<std::string, std::string> tokens_;  // such as bos_token
  std::string end_token_;
  Learn learn_;
  bool built_in_;
  std::tm clock_;
};

/// Returns a message of a conversation as a JSON object.
std::string chat_message(std::string_view role, std::string_view content);

/// How a model that was trained with a template ends its answers.
struct AnswerEnd {
  std::string text = {};             ///< the text that the template writes there, such as "<|im_end|>"; empty: none
  std::vector<TokenId> tokens = {};  ///< the tokens of that name and of eos_token, if the tokenizer has them
};
/// Returns how answers end.
AnswerEnd answer_end(const ChatFormat& format);

}  // namespace fsdp::text
