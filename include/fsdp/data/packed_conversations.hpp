// SPDX-License-Identifier: Apache-2.0
/// @file
/// Conversations packed into windows of one length, several in each; none is cut unless OnLong::cut says so.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <fsdp/data/conversations.hpp>

namespace fsdp::data {

/// What becomes of a conversation that is longer than a window.
enum class OnLong : std::uint8_t {
  error,  ///< it is named, and nothing runs
  drop,   ///< it is left out, and counted
  cut,    ///< its first tokens stay; without an answer among them it is left out, and counted
};

/// As flags are written (train/flag_set.hpp).
void from_text(std::string_view flag, std::string_view text, OnLong& value);
std::string to_text(OnLong value);

/// How conversations are packed.
struct Packing {
  std::int64_t sequence_length = 0;
  double validation_fraction = 0;  ///< the last conversations are held out
  std::int64_t vocabulary = 0;
  OnLong on_long = OnLong::error;
};

/// A conversation of n tokens takes n - 1 places of a window: each but its last token, with the one behind it as its
/// target. A window takes whole conversations in the files' order, each where the least room is left (best fit); all
/// of them are documents of their own, and so is what remains at its end, without targets.
class PackedConversations {
 public:
  /// Throws InputError where no window is left to train on, where tokens are not below the vocabulary, and for
  /// conversations that are too long where they are errors.
  PackedConversations(const std::filesystem::path& path, const Packing& packing);

  std::int64_t training() const { return training_; }
  std::int64_t validation() const { return static_cast<std::int64_t>(windows_.size()) - training_; }
  std::int64_t sequence_length() const { return packing_.sequence_length; }

  /// Tokens and targets of a window, and where its documents end, behind what `documents` holds: its last entry is
  /// where the window begins.
  void fill(std::int64_t window, std::int32_t* tokens, std::int32_t* targets,
            std::vector<std::int64_t>& documents) const;

  /// Counts and how full the windows are, for people.
  std::string text() const;
  /// What ranks and resumed runs must agree on.
  std::string identity() const;

 private:
  void pack(std::int64_t begin, std::int64_t end);
  std::int64_t places(std::int64_t conversation) const;  ///< that it takes; 0: it is left out

  Conversations conversations_;
  Packing packing_;
  std::vector<std::vector<std::int64_t>> windows_;  // of conversations; those that are trained on, then held out
  std::int64_t training_ = 0;
  std::int64_t dropped_ = 0, cut_ = 0, used_places_ = 0;
};

}  // namespace fsdp::data
