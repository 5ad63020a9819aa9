// SPDX-License-Identifier: Apache-2.0
/// @file
/// A conversation in the terminal: what is read, what the model is fed, what is drawn and printed. Knows no model and
/// no rank; what runs one is train/chat.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <fsdp/text/chat.hpp>
#include <fsdp/text/tokenizer.hpp>
#include <fsdp/train/options.hpp>

namespace fsdp::train {

/// What the model is to compute next: all ranks the same.
struct ChatWork {
  bool ends = false;                      ///< nothing; the conversation is over
  bool anew = false;                      ///< the tokens begin a sequence; otherwise there is one, which goes on
  std::int64_t position = 0;              ///< of the first token
  std::vector<std::int32_t> tokens = {};  ///< one where the sequence goes on

  /// The same as numbers, for ranks that hear of it.
  std::vector<std::int32_t> numbers(std::size_t room) const;
  static ChatWork of(std::span<const std::int32_t> numbers);
};

class ChatSession {
 public:
  /// Throws InputError for a tokenizer whose ids the vocabulary lacks, or without a template.
  ChatSession(const ChatOptions& options, std::int64_t vocabulary);

  /// Reads lines where it is the user's turn, until something is to be computed. `prompt_tokens`: how many may begin a
  /// sequence in one pass. Throws InputError where the template refuses the conversation.
  ChatWork next(std::FILE* in, std::int64_t prompt_tokens);
  /// The logits behind the last token of what `next` said [V]: draws a token if all of them are fed, and prints.
  void take(std::span<const float> logits);

 private:
  bool read_line(std::FILE* in);
  void ask();
  void answered(bool whole);
  void print(bool last);

  text::ChatFormat format_;
  ChatOptions options_;
  std::int64_t vocabulary_;
  std::vector<std::int32_t> stops_;
  std::string end_text_;              // what the template puts behind an answer
  std::string messages_;              // JSON's, without the closing bracket
  std::vector<std::int32_t> tokens_;  // of the conversation so far
  std::size_t fed_ = 0;               // of them
  std::size_t answer_begin_ = 0;      // the first token of the answer that is being written
  bool writing_ = false;
  std::optional<text::StreamDecoder> decoder_;
  std::string answer_;       // its text
  std::size_t printed_ = 0;  // bytes of it
  std::uint64_t draws_ = 0;
};

}  // namespace fsdp::train
