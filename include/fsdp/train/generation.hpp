// SPDX-License-Identifier: Apache-2.0
/// @file
/// The sequences of `tessera generate`: prompts that grow by a token at a time. Knows no model and no rank; what runs
/// one is train/generate.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fsdp/text/tokenizer.hpp>
#include <fsdp/train/options.hpp>

namespace fsdp::train {

/// The tokenizer of a text prompt, if the model has one. Throws InputError for one that is not supported.
std::optional<text::Tokenizer> prompt_tokenizer(const GenerateOptions& options);

/// The ids of "1,2,3". Throws InputError, which names the flag.
std::vector<std::int32_t> parse_ids(std::string_view flag, std::string_view text);

/// The tokens of a text that a sequence begins with: by the tokenizer, or without one its bytes. Throws InputError,
/// which names the flag, for what the vocabulary does not have; `instead`: what else could be given where the bytes are
/// none.
std::vector<std::int32_t> prompt_tokens(std::string_view flag, const std::string& prompt,
                                        const std::optional<text::Tokenizer>& tokenizer, std::int64_t vocabulary,
                                        std::string_view instead);

class Generation {
 public:
  /// `tokenizer`: reads the prompt and writes what follows; without one both are bytes. Throws InputError for a prompt
  /// or a stop token that the vocabulary does not have.
  Generation(const GenerateOptions& options, std::int64_t vocabulary,
             const std::optional<text::Tokenizer>& tokenizer = {});

  std::int64_t sequences() const { return std::ssize(sequences_); }
  /// Tokens of the longest sequence at its end, without its last token, which nothing follows.
  std::int64_t context() const { return context_; }
  std::int64_t longest_prompt() const { return context_ - (new_tokens_ > 0 ? new_tokens_ - 1 : 0); }
  /// Throws InputError where a window is longer than the positions of a model, which is named.
  void require_positions(std::int64_t positions, std::string_view model) const;

  /// Whether no sequence grows any more.
  bool done() const;
  /// The sequences so far, padded behind their end, where a causal model does not look [sequences * length].
  std::vector<std::int32_t> window(std::int64_t length) const;
  /// The row of each one's last token in the window [sequences].
  std::vector<std::int64_t> last_rows(std::int64_t length) const;
  /// Each one's last token and its position; of a whole one the last but one, which is as good: nobody draws of it.
  struct Last {
    std::vector<std::int32_t> tokens, positions;  // [sequences]
  };
  Last last() const;

  /// The token that follows each sequence, of its logits [sequences, V]; 0 where it does not grow. Throws as `sample`.
  std::vector<std::int32_t> draw(std::span<const float> logits) const;
  /// Appends what was drawn.
  void append(std::span<const std::int32_t> drawn);

  /// What can be printed and was not yet: of text whole characters, of bytes all, and at the end a newline; of ids the
  /// line of each sequence that is whole, in the order of the prompts.
  std::string take_output();

 private:
  struct Sequence {
    std::vector<std::int32_t> tokens;
    std::size_t most = 0;  ///< tokens
    bool stopped = false;

    bool done() const { return stopped || tokens.size() >= most; }
  };

  std::string take_text();

  bool ids_given_;
  std::string prompt_ = {};                          // of text, until it is printed
  std::optional<text::StreamDecoder> decoder_ = {};  // of text
  Sampling sampling_;
  std::uint64_t seed_;
  std::int64_t vocabulary_;
  std::int64_t new_tokens_;
  std::int64_t context_ = 0;
  std::vector<std::int32_t> stops_;
  std::vector<Sequence> sequences_;
  std::size_t printed_ = 0;  ///< bytes of the text, or sequences
};

}  // namespace fsdp::train
