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

/// The answers of a conversation that the model learns: all of them, or only the last one.
enum class Learn : std::uint8_t { all, last };

/// Conversions for flags (tessera/trainer/flags/flag_set.hpp): all, last.
void from_text(std::string_view flag, std::string_view text, Learn& value);
std::string to_text(Learn value);

/// Tokens of one conversation.
struct ChatTokens {
  std::vector<TokenId> ids = {};
  std::vector<bool> answers = {};  ///< for each token: whether it belongs to an answer that the model learns
  std::string missing = {};    ///< the first part of the record that the template omits; empty if it writes all parts
  std::int64_t reasoning = 0;  ///< number of answers whose reasoning the template omits
  std::int64_t empty = 0;      ///< number of learned answers that have neither text nor tool calls
  std::vector<std::string> unread = {};  ///< keys of the record that neither its form nor the template reads
};

/// Returns the fixed date that templates see in training: 26 July 2024, the default date of Llama 3.1's template. The
/// tokens thus do not depend on the day of the run.
std::tm training_clock();
/// Returns the current local time, which templates see in an interactive chat.
std::tm clock_now();

/// Encodes conversations. Immutable; several threads can call its functions concurrently.
class ChatFormat {
 public:
  /// `tokenizer`: a tokenizer.json. `chat_template`: "auto" uses the template in the tokenizer's folder
  /// (chat_template.jinja, or the one in tokenizer_config.json); "chatml", "llama3", "qwen3" and "plain" are built in;
  /// any other value is the path of a file. `clock`: the time that the template sees. `end_token`: as `asked` of
  /// end_token_of; the template sees it as eos_token. `learn`: the answers that `encode` marks. Throws InputError.
  ChatFormat(const std::filesystem::path& tokenizer, const std::string& chat_template, const std::tm& clock,
             const std::string& end_token = {}, Learn learn = Learn::all);

  /// Encodes one conversation, a JSON object of one of two forms:
  /// - {"messages": [{"role", "content", ...}, ...]}, optionally with "tools", "system" and "chat_template_kwargs";
  /// - {"prompt", "completion"}, both texts or both lists of messages.
  /// Keys that are null count as absent. Content is a text or a list of text parts.
  ///
  /// Answers are the text in the template's generation blocks. For a template without such blocks, they are the text
  /// that each turn of the role assistant adds. With a completion, only the completion contains answers; a completion
  /// that is a text ends with the end token. A message whose "weight", "train", "training" or "loss" is 0 or false is
  /// not learned: its answer is context. Throws InputError "`source`: ..." for any other form or any other training
  /// mark, for a conversation without an answer, if no end token is known, if the template renders a turn differently
  /// once other turns follow it, and if a built-in template omits a part of the conversation. For other templates,
  /// ChatTokens::missing describes that part.
  ChatTokens encode(std::string_view json, const std::string& source) const;

  /// Renders messages, a JSON array, up to the beginning of the next answer. `missing`: receives the first part of the
  /// messages that the template omits, as in ChatTokens, but also for built-in templates. Throws InputError.
  std::string prompt(std::string_view messages, std::string* missing = nullptr) const;

  /// The tokenizer.
  const Tokenizer& tokenizer() const { return tokenizer_; }
  const std::string& name() const { return source_.name; }  ///< the template's name, for messages to the user
  std::uint64_t digest() const;                             ///< a hash of the template and the names of special tokens
  /// Returns the special tokens by their keys, such as eos_token.
  const std::map<std::string, std::string>& special_tokens() const { return tokens_; }

  /// Returns a warning for each special token that the template writes but the tokenizer does not have.
  std::vector<std::string> warnings() const;

 private:
  ChatTokens of_texts(const ChatRow& row, const std::string& source) const;
  ChatTokens of_messages(ChatRow& row, const std::string& source) const;
  RenderedChat rendered(const ChatRow& row) const;
  /// Concatenates contents that are lists of text parts, unless the template iterates over such lists itself.
  void join_unread_parts(ChatRow& row) const;
  /// Checks that the rendered text contains all parts of the row, and sets `missing` and `reasoning` of `tokens`.
  /// `front`: offset of the first answer. `learned`: byte ranges of the learned answers; empty if not known.
  void check_parts(const ChatRow& row, std::string_view text, std::size_t front, std::span<const TextRange> learned,
                   ChatTokens& tokens) const;
  /// Returns the keys of a row that neither its form nor the template reads.
  std::vector<std::string> unread_keys(const ChatRow& row) const;
  /// Returns the byte range of message i of a row in `whole`, the rendered text. Adds the rendering steps that this
  /// takes to `steps`, which are limited.
  TextRange turn(const ChatRow& row, std::size_t i, const std::string& whole, const std::string& source,
                 std::size_t& steps) const;
  std::vector<TextRange> learned_ranges(const ChatRow& row, const RenderedChat& chat, const std::string& source) const;

  std::filesystem::path file_;  // the tokenizer's file
  Tokenizer tokenizer_;
  NamedText source_;
  ChatTemplate template_;
  std::map<std::string, std::string> tokens_;  // special tokens by key, such as bos_token
  std::string end_token_;
  Learn learn_;
  bool built_in_;
  std::tm clock_;
};

/// Returns a message of a conversation as a JSON object.
std::string chat_message(std::string_view role, std::string_view content);

/// The end of an answer of a model that was trained with a template.
struct AnswerEnd {
  std::string text = {};  ///< the text that the template writes after an answer, such as "<|im_end|>"; empty if none
  std::vector<TokenId> tokens = {};  ///< the token with this text and the eos_token, if the tokenizer has them
};
/// Returns the text and the tokens that end an answer in a format.
AnswerEnd answer_end(const ChatFormat& format);

}  // namespace fsdp::text
