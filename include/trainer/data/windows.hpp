// SPDX-License-Identifier: Apache-2.0
/// @file
/// Windows of a fixed sequence length, cut from a corpus or packed with conversations; the last ones are held out.
/// Window i of a corpus is tokens [i * S, (i + 1) * S]: the input is all but the last, the target all but the first.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/trainer/data/conversations.hpp>
#include <tessera/trainer/data/corpus.hpp>

namespace fsdp::data {

/// The separator of documents: a token (a byte if the data are text), or the borders in Megatron-LM's index.
struct DocumentSeparator {
  constexpr DocumentSeparator(std::int64_t token = 0) : token(token) {}  ///< documents end with this token

  std::int64_t token = 0;
  bool index = false;  ///< separate documents at the borders in the index, not at a token

  friend bool operator==(const DocumentSeparator&, const DocumentSeparator&) = default;
};
/// Conversion for flags (tessera/trainer/flags/flag_set.hpp): a whole number, or index.
void from_text(std::string_view flag, std::string_view text, DocumentSeparator& value);
/// Converts a separator to the text that from_text reads.
std::string to_text(const DocumentSeparator& value);

/// Returns at most `limit` of the numbers [begin, begin + count), evenly spread; all of them if `limit` is 0.
std::vector<std::int64_t> evenly_spread(std::int64_t begin, std::int64_t count, std::int64_t limit);

/// Returns how many of `count` items to hold out: the given fraction, at least one if it is above 0. Throws InputError
/// if the fraction is not in [0, 1), or if none is left for training. `what`: the items' name for the error.
std::int64_t held_out_of(std::int64_t count, double fraction, std::string_view what);

/// Appends the ends of a window's documents to `lengths`, the cumulative lengths whose last entry must be the window's
/// beginning. A document begins at the window's first token and after each separator.
void append_documents(std::span<const std::int32_t> tokens, std::int32_t separator, std::vector<std::int64_t>& lengths);
/// The same for the `length` tokens from token `begin` on. `borders`: first tokens of documents, ascending.
void append_documents(std::span<const std::int64_t> borders, std::int64_t begin, std::int64_t length,
                      std::vector<std::int64_t>& lengths);

/// Consecutive windows of a corpus; inputs do not overlap. The last windows are held out.
class Windows {
 public:
  /// Holds out windows as held_out_of says. Throws InputError if the data are shorter than a window, or if no window is
  /// left for training. The corpus must outlive this object.
  Windows(const Corpus& corpus, std::int64_t seq_len, double validation_fraction, std::int64_t vocab_size = 256);

  std::int64_t seq_len() const { return seq_len_; }               ///< number of tokens in a window's input
  std::int64_t count() const { return count_; }                   ///< number of all windows
  std::int64_t training() const { return count_ - validation_; }  ///< windows [0, training())
  std::int64_t validation() const { return validation_; }         ///< windows [training(), count())

  /// Copies a window's tokens and next tokens, seq_len() each. Throws InputError for a token not below vocab_size.
  void fill(std::int64_t window, std::int32_t* tokens, std::int32_t* targets) const;

 private:
  const Corpus* corpus_;
  std::int64_t seq_len_, count_, validation_, vocab_size_;
};

/// What to do with a conversation that is longer than a window.
enum class OnLong : std::uint8_t {
  error,  ///< throw an InputError that identifies it
  drop,   ///< omit it, and count it
  cut,    ///< keep its first tokens; if they contain no answer, omit and count it
};

/// Conversions for flags (tessera/trainer/flags/flag_set.hpp): error, drop, cut.
void from_text(std::string_view flag, std::string_view text, OnLong& value);
std::string to_text(OnLong value);

/// Parameters of packing.
struct Packing {
  std::int64_t sequence_length = 0;
  double validation_fraction = 0;  ///< fraction of the conversations to hold out: the last ones
  std::int64_t vocabulary = 0;     ///< size of the model's vocabulary
  OnLong on_long = OnLong::error;
};

/// Windows of packed conversations. A conversation of n tokens occupies n - 1 positions of a window: each token but the
/// last, with the next token as its target. In the order of the files, each goes into the window with the least free
/// space that still fits it (best fit). Each is a document; so is padding at a window's end, without targets.
class PackedConversations {
 public:
  /// `path`: a file that ConversationTexts wrote. Throws InputError if no window is left for training, or, with
  /// OnLong::error, if a conversation is too long.
  PackedConversations(const std::filesystem::path& path, const Packing& packing);

  std::int64_t training() const { return training_; }
  std::int64_t validation() const { return static_cast<std::int64_t>(windows_.size()) - training_; }
  std::int64_t sequence_length() const { return packing_.sequence_length; }

  /// Fills tokens and targets [sequence_length] of a window, and appends the ends of its documents to `documents`, as
  /// append_documents does. Tokens that are not answers have no target (-1). Throws as Windows::fill does.
  void fill(std::int64_t window, std::int32_t* tokens, std::int32_t* targets,
            std::vector<std::int64_t>& documents) const;

  std::string text() const;      ///< the counts and the fill rate of the windows, as text for the user
  std::string identity() const;  ///< a line that must be the same on all ranks and in resumed runs

 private:
  void pack(std::int64_t begin, std::int64_t end);
  std::int64_t places(std::int64_t conversation) const;  ///< number of positions that it occupies; 0 if it is omitted

  Conversations conversations_;
  Packing packing_;
  std::vector<std::vector<std::int64_t>> windows_;  // indices of each window's conversations; training windows first
  std::int64_t training_ = 0;
  std::int64_t dropped_ = 0, cut_ = 0, used_places_ = 0;
};

}  // namespace fsdp::data
