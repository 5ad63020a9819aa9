// SPDX-License-Identifier: Apache-2.0
/// @file
/// Packs several conversations into each window of a fixed length. Truncates conversations only with OnLong::cut.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/trainer/data/conversations.hpp>

namespace fsdp::data {

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
/// last, with the next token as its target. Conversations are packed in the order of the files; each goes into the
/// window with the least free space that still fits it (best fit). Each conversation is a document. Padding at a
/// window's end is a document without targets.
class PackedConversations {
 public:
  /// `path`: a file that ConversationTexts wrote. Throws InputError if no window is left for training, or, with
  /// OnLong::error, if a conversation is too long.
  PackedConversations(const std::filesystem::path& path, const Packing& packing);

  std::int64_t training() const { return training_; }
  std::int64_t validation() const { return static_cast<std::int64_t>(windows_.size()) - training_; }
  std::int64_t sequence_length() const { return packing_.sequence_length; }

  /// Fills tokens and targets [sequence_length] of a window, and appends the ends of its documents to `documents`,
  /// whose last entry must be the window's beginning. Tokens that are not answers have no target (-1). Throws
  /// InputError if a token is not below the vocabulary.
  void fill(std::int64_t window, std::int32_t* tokens, std::int32_t* targets,
            std::vector<std::int64_t>& documents) const;

  /// Returns the counts and the fill rate of the windows, as text for the user.
  std::string text() const;
  /// Returns a line that must be the same on all ranks and in resumed runs.
  std::string identity() const;

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
