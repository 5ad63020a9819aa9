// SPDX-License-Identifier: Apache-2.0
/// @file
/// Packed documents: sequences cut further, so that no token attends across and positions begin anew.
///
/// They are given by cumulative lengths: document i is tokens [lengths[i], lengths[i + 1]) of the batch. An empty list
/// says that every sequence is one document.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include <fsdp/core/error.hpp>

namespace fsdp::device {

/// On the host, whatever the device: a list is short.
using CumulativeLengths = std::span<const std::int64_t>;

/// Tokens [begin, end) of a batch that attend to each other alone.
struct Document {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// The document that a token is in.
inline Document document_of(CumulativeLengths lengths, std::int64_t sequence_length, std::int64_t token) {
  if (lengths.empty()) {
    const std::int64_t begin = token - token % sequence_length;
    return {.begin = begin, .end = begin + sequence_length};
  }
  const auto after = std::upper_bound(lengths.begin(), lengths.end(), token);
  return {.begin = *(after - 1), .end = *after};
}

/// Throws InputError unless the documents cover the tokens and none reaches from one sequence into the next.
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
