// SPDX-License-Identifier: Apache-2.0
/// @file
/// Formats that are recognized by a file's first bytes and that no data reader supports. All readers use this check.
///
/// To add one: a line in the table of src/fsdp/core/magics.cpp.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "input_files.hpp"

namespace fsdp::data {

/// A format, and advice for a file in this format.
struct FileKind {
  std::string name = {};    ///< "compressed by gzip"
  std::string advice = {};  ///< "unpack it (gunzip)"
  bool missing = false;     ///< whether the file is a placeholder for absent data
};

/// Returns the format that a file's first bytes identify; nothing for text, for tokens and for unknown bytes.
std::optional<FileKind> known_kind(std::string_view head);

/// Returns whether bytes are text: UTF-8 without control characters, except white space and escapes.
bool is_plain_text(std::string_view head);

/// Throws InputError if a file without a header cannot consist of tokens of `token_bytes` (2 or 4): if it begins like a
/// known format, is text, or contains wider integers, whose upper halves are zero. `format`: for the message.
void require_raw_tokens(const OpenFile& file, int token_bytes, const std::string& format);

}  // namespace fsdp::data
