// SPDX-License-Identifier: Apache-2.0
/// @file
/// A corpus cut into windows of a sequence length, each token with its next, and the part of them that is held out.
///
/// Window i is tokens [i * S, (i + 1) * S]: the input is all but the last, the target all but the first.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <fsdp/data/corpus.hpp>

namespace fsdp::data {

/// At most `limit` of the numbers [begin, begin + count), evenly spread; all of them where `limit` is 0.
std::vector<std::int64_t> evenly_spread(std::int64_t begin, std::int64_t count, std::int64_t limit);

/// How many of so many "windows" a fraction holds out: at least one where it is above 0. Throws InputError where the
/// fraction is not in [0, 1), and where none is left to train on.
std::int64_t held_out_of(std::int64_t count, double fraction, std::string_view what);

/// Appends the documents of a window to cumulative lengths that end where it begins: the window's first token begins
/// one, and so does each token after a separator.
void append_documents(std::span<const std::int32_t> tokens, std::int32_t separator, std::vector<std::int64_t>& lengths);

/// Consecutive windows of a corpus, each with its next token; the last of them are held out.
class Windows {
 public:
  /// The last `validation_fraction` of the windows are held out: at least one where the fraction is above 0.
  /// Throws InputError where the data hold no window, or none would be left to train on. The corpus must outlive this.
  Windows(const Corpus& corpus, std::int64_t seq_len, double validation_fraction, std::int64_t vocab_size = 256);

  /// Tokens of a window.
  std::int64_t seq_len() const { return seq_len_; }
  std::int64_t count() const { return count_; }                   ///< of all windows
  std::int64_t training() const { return count_ - validation_; }  ///< windows [0, training())
  std::int64_t validation() const { return validation_; }         ///< windows [training(), count())

  /// Tokens and next tokens of one window, seq_len() each. Throws InputError on a token that is not below vocab_size.
  void fill(std::int64_t window, std::int32_t* tokens, std::int32_t* targets) const;

 private:
  const Corpus* corpus_;
  std::int64_t seq_len_, count_, validation_, vocab_size_;
};

}  // namespace fsdp::data
