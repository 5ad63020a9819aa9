// SPDX-License-Identifier: Apache-2.0
/// @file
/// A conversation in the terminal: reads the user's lines, decides which tokens to feed, samples answers, prints them.
/// Independent of model and ranks; tessera/trainer/run/generate.hpp runs it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <tessera/text/chat.hpp>
#include <tessera/text/tokenizer.hpp>
#include <tessera/trainer/flags/options.hpp>

namespace fsdp::train {

/// The next forward pass, the same on all ranks.
struct ChatWork {
  bool ends = false;                      ///< the conversation is over; nothing to compute
  bool anew = false;                      ///< start a new sequence; false: continue the KV cache of the present one
  std::int64_t position = 0;              ///< position of the first token in the sequence
  std::vector<std::int32_t> tokens = {};  ///< tokens to feed; exactly one if the sequence continues

  /// Packs this into room + 4 numbers to broadcast; `of` unpacks them. There must be at most `room` tokens.
  std::vector<std::int32_t> numbers(std::size_t room) const;
  static ChatWork of(std::span<const std::int32_t> numbers);
};

/// The state of one conversation: messages, tokens fed so far, and the answer that is being written.
class ChatSession {
 public:
  /// Throws InputError without a tokenizer or a chat template, or if the tokenizer has ids outside the vocabulary.
  ChatSession(const ChatOptions& options, std::int64_t vocabulary);

  /// Returns the next forward pass. If it is the user's turn, reads lines until there is a message. `prompt_tokens`:
  /// the most tokens that can start a sequence in one pass. Throws InputError if the template rejects the conversation.
  ChatWork next(std::FILE* in, std::int64_t prompt_tokens);
  /// Receives the logits [V] after the last token that `next` returned. Once the whole prompt is fed, samples the
  /// answer's next token and prints it.
  void take(std::span<const float> logits);

 private:
  bool read_line(std::FILE* in);
  void ask();
  void answered(bool whole);
  void print(bool last);

  text::ChatFormat format_;
  ChatOptions options_;
  std::vector<std::int32_t> stops_;
  std::vector<std::int32_t> never_;   // ids that are never sampled
  std::string end_text_;              // the template writes it after each answer
  std::string messages_;              // elements of a JSON array, without its brackets
  std::vector<std::int32_t> tokens_;  // tokens of the conversation so far
  std::size_t fed_ = 0;               // number of tokens_ that the model has processed
  std::size_t answer_begin_ = 0;      // index in tokens_ of the start of the current answer
  bool writing_ = false;
  std::optional<text::StreamDecoder> decoder_;
  std::string answer_;       // text of the present answer
  std::size_t printed_ = 0;  // bytes of answer_
  std::uint64_t draws_ = 0;
};

}  // namespace fsdp::train
