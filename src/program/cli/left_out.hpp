// SPDX-License-Identifier: Apache-2.0
/// @file
/// What `plot` and `diff` say of lines that they cannot use.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>

#include <tessera/comm/launch/print.hpp>
#include <tessera/fsdp/core/error.hpp>

namespace fsdp::cli {

/// Prints a warning for each of the first lines of a file that are left out, and the number of the others.
inline void warn_of_left_out(const std::string& file, std::span<const std::string> sentences) {
  constexpr std::size_t most_named = 10;
  for (const std::string& sentence : sentences.first(std::min(sentences.size(), most_named)))
    print_warning(sentence + "; left out");
  if (sentences.size() > most_named)
    print_warning(message(file, ": ", sentences.size() - most_named, " more lines like these"));
}

}  // namespace fsdp::cli
