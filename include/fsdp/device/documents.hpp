// SPDX-License-Identifier: Apache-2.0
/// @file
/// Packed documents: several documents in one sequence. Tokens attend only within their document, and positions restart
/// at each document.
///
/// Documents are specified by cumulative lengths: document i consists of tokens [lengths[i], lengths[i + 1]) of the
/// batch. With an empty list every sequence is one document.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include <tessera/fsdp/core/error.hpp>

namespace fsdp::device {

/// Cumulative lengths, which are in host memory for every device, since the list is short.
using CumulativeLengths = std::span<const std::int64_t>;

/// One document: tokens [begin, end) of a batch, which attend only to each other.
struct Document {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// Returns the document of a token.
inline Document document_of(CumulativeLengths lengths, std::int64_t sequence_length, std::int64_t token) {
  if (lengths.empty()) {
    const std::int64_t begin = token - token % sequence_length;
    return {.begin = begin, .end = begin + sequence_length};
  }
  const auto after = std::upper_bound(lengths.begin(), lengths.end(), token);
  return {.begin = *(after - 1), .end = *after};
}

/// Throws InputError unless the documents cover the tokens and no document crosses the end of a sequence.
inline void require_documents(CumulativeLengths lengths, std::int64_t tokens, std::int64_t sequence_length) {
  if (lengths.empty()) return;
  require<InputError>(lengths.front() == 0, "documents: the first cumulative length is ", lengths.front(),
                      "; the list must begin with 0");
  for (std::size_t i = 1; i < lengths.size(); ++i) {
    const std::int64_t begin = lengths[i - 1], end = lengths[i];
    require<InputError>(begin <= end, "documents: cumulative length ", i, " is ", end, " after ", begin,
                        "; they must not decrease");
    require<InputError>(begin == end || begin / sequence_length == (end - 1) / sequence_length, "documents: tokens [",
                        begin, ", ", end, ") reach over the end of a sequence of ", sequence_length,
                        "; cut the document there, or give the batch as one sequence");
  }
  require<InputError>(lengths.back() == tokens, "documents: the cumulative lengths end at ", lengths.back(),
                      ", the batch has ", tokens, " tokens; the list must cover all of them");
}

}  // namespace fsdp::device
