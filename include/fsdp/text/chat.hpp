// SPDX-License-Identifier: Apache-2.0
/// @file
/// Conversations as tokens, and which of them are answers: a tokenizer with a chat template.
#pragma once

#include <cstdint>
#include <ctime>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <fsdp/text/chat_template.hpp>
#include <fsdp/text/tokenizer.hpp>
#include <fsdp/text/tokenizer_config.hpp>

namespace fsdp::text {

/// Tokens of one conversation.
struct ChatTokens {
  std::vector<TokenId> ids = {};
  std::vector<bool> answers = {};  ///< of each token: whether the model is to learn it
};

/// The clock of training: 26 July 2024, Llama 3.1's own date, so that a run's tokens are the same on every day.
std::tm training_clock();
/// Now, in local time: of a chat.
std::tm clock_now();

/// Immutable; any number of threads may encode.
class ChatFormat {
 public:
  /// `chat_template`: "auto" is the one beside the tokenizer (chat_template.jinja, or in tokenizer_config.json);
  /// "chatml", "llama3" and "plain" are built in; anything else is a file. Throws InputError.
  ChatFormat(const std::filesystem::path& tokenizer, const std::string& chat_template, const std::tm& clock);

  /// One JSON object: {"messages": [{"role", "content", ...}, ...]} with "tools" and "chat_template_kwargs" where the
  /// template takes them, or {"prompt", "completion"}, both texts or both lists of messages. Answers are what stands in
  /// the template's generation blocks, or else what each turn of the role assistant adds to the text before it; of a
  /// completion, and of nothing else where there is one. Throws InputError "`source`: ..." for another form, where
  /// there is no answer, and where the template writes earlier turns otherwise once others follow.
  ChatTokens encode(std::string_view json, const std::string& source) const;

  /// The text of messages, a JSON array, up to where the next answer begins.
  std::string prompt(std::string_view messages) const;

  /// The one that its template was read for.
  const Tokenizer& tokenizer() const { return tokenizer_; }
  const std::string& name() const { return source_.name; }  ///< of the template, for people
  std::uint64_t digest() const;                             ///< differs where templates or the names of tokens do

 private:
  struct Row;
  ChatTokens of_texts(const Row& row) const;
  ChatTokens of_messages(const Row& row, const std::string& source) const;
  RenderedChat rendered(const Row& row) const;
  std::vector<TextRange> added_by_turns(const Row& row, const std::string& whole, const std::string& source) const;

  Tokenizer tokenizer_;
  NamedText source_;
  ChatTemplate template_;
  std::map<std::string, std::string> tokens_;  // such as bos_token
  std::tm clock_;
};

/// A message of a conversation, as JSON.
std::string chat_message(std::string_view role, std::string_view content);

/// How a model that was trained on a template's conversations ends an answer.
struct AnswerEnd {
  std::string text = {};             ///< what the template writes there, such as "<|im_end|>"; empty: nothing
  std::vector<TokenId> tokens = {};  ///< that, and eos_token, where they are tokens
};
/// Throws InputError for a damaged tokenizer_config.json beside the tokenizer.
AnswerEnd answer_end(const ChatFormat& format, const std::filesystem::path& tokenizer);

}  // namespace fsdp::text
