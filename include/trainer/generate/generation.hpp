// SPDX-License-Identifier: Apache-2.0
/// @file
/// The sequences of `tessera generate`: prompts that grow by one token at a time. Independent of model and ranks;
/// tessera/trainer/run/generate.hpp runs them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/text/tokenizer.hpp>
#include <tessera/trainer/flags/options.hpp>

namespace fsdp::train {

/// Encodes the prompt that a sequence starts with. Without a tokenizer, each byte is a token. Throws an InputError that
/// identifies the flag for tokens outside the vocabulary and, without a tokenizer, for a vocabulary of more than 256
/// tokens. `instead`: advice for the latter error.
std::vector<std::int32_t> prompt_tokens(std::string_view flag, const std::string& prompt,
                                        const std::optional<text::Tokenizer>& tokenizer, std::int64_t vocabulary,
                                        std::string_view instead);

/// The state of all sequences: their tokens, when they stop, and how much was printed.
class Generation {
 public:
  /// `tokenizer`: encodes the prompt and decodes the new tokens; without one, tokens are bytes. Ids that it does not
  /// have are never sampled, unless they are stop tokens. Throws InputError if the prompt or a stop token is not in the
  /// vocabulary.
  Generation(const GenerateOptions& options, std::int64_t vocabulary,
             const std::optional<text::Tokenizer>& tokenizer = {});

  std::int64_t sequences() const { return std::ssize(sequences_); }
  /// The most tokens of one sequence that the model reads: the longest complete sequence without its last token.
  std::int64_t context() const { return context_; }
  /// Number of tokens in the longest prompt.
  std::int64_t longest_prompt() const { return context_ - (new_tokens_ > 0 ? new_tokens_ - 1 : 0); }
  /// Throws InputError if `context` exceeds the model's number of positions. `model`: its name for the error.
  void require_positions(std::int64_t positions, std::string_view model) const;

  bool done() const;  ///< whether all sequences are complete
  /// Returns the first `length` tokens of each sequence, padded at the end [sequences * length].
  std::vector<std::int32_t> window(std::int64_t length) const;
  /// Returns the row of each sequence's last token in that window [sequences].
  std::vector<std::int64_t> last_rows(std::int64_t length) const;
  /// Each sequence's last token and its position, at most context() - 1; also of complete sequences.
  struct Last {
    std::vector<std::int32_t> tokens, positions;  // [sequences]
  };
  Last last() const;

  /// Samples each sequence's next token from its logits [sequences, V]; 0 if complete. Throws like `sample`.
  std::vector<std::int32_t> draw(std::span<const float> logits) const;
  /// Appends the tokens that `draw` returned to the sequences that are not complete.
  void append(std::span<const std::int32_t> drawn);

  /// Returns the output that was not returned before. Text prompt: complete characters (without a tokenizer all bytes),
  /// and a newline at the end. Prompts of ids: one line for each complete sequence, in the order of the prompts.
  std::string take_output();

 private:
  struct Sequence {
    std::vector<std::int32_t> tokens;
    std::size_t most = 0;  ///< the sequence is complete at this many tokens
    bool stopped = false;

    bool done() const { return stopped || tokens.size() >= most; }
  };

  std::string take_text();

  bool ids_given_;
  std::string prompt_ = {};                          // a text prompt, until it is printed
  std::optional<text::StreamDecoder> decoder_ = {};  // empty without a tokenizer
  Sampling sampling_;
  std::uint64_t seed_;
  std::int64_t vocabulary_;
  std::int64_t new_tokens_;
  std::int64_t context_ = 0;
  std::vector<std::int32_t> stops_, never_;
  std::vector<Sequence> sequences_;
  std::size_t printed_ = 0;  ///< printed tokens of a text prompt's sequence; for prompts of ids: printed sequences
};

}  // namespace fsdp::train
