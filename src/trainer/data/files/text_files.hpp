// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which files of --data a tokenizer reads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include <tessera/trainer/data/left_out.hpp>

#include "file_kinds.hpp"
#include "input_files.hpp"
#include "text_units.hpp"

namespace fsdp::data {

inline constexpr std::int64_t reading_version = 2;  ///< changes with what is read from the same files, for caches

/// What a reader does with a file.
enum class Reading : std::uint8_t {
  text,     ///< reads it
  binary,   ///< leaves it out: it has a NUL
  another,  ///< leaves it out: it is of another known format
};

/// What a file's name and first bytes say of it.
struct TextCandidate {
  /// Throws InputError for text in UTF-16 or UTF-32.
  explicit TextCandidate(const std::filesystem::path& path);

  std::int64_t bytes = 0;
  Reading reading = Reading::text;
  FileKind kind = {};  ///< the other known format
  TextForm form = TextForm::text;
  std::int64_t mark_bytes = 0;  ///< of the byte order mark at its beginning
  bool begins_record = false;   ///< it is read as text, by its name, and its first line is an object of JSON
};

/// Files of text, and what was left out.
struct TextFiles {
  std::vector<TextFile> files = {};
  std::int64_t all_bytes = 0;
  LeftOut left_out = {};
  std::vector<std::string> warnings = {};
};

/// Lists the texts below paths. Files in folders that are not text are left out. Warns of the first file that begins
/// with a record and is read as text. Throws InputError for a named file of a known format, for text that is not UTF-8,
/// and for JSON that is no records.
TextFiles text_files(std::span<const std::filesystem::path> paths);

/// Throws InputError for TextForm::object. `left_out`: of the file's folder, for the message.
void require_records(TextForm form, const std::filesystem::path& path, const LeftOut& left_out = {});

/// Returns whether a file's name says that it holds JSON.
bool is_named_json(const std::filesystem::path& path);

/// Leaves a file out that is not text. Throws InputError if it is of a known format and named, or stands for data that
/// are not there.
void leave_out(const TextCandidate& candidate, const InputFile& file, LeftOut& left_out);

/// Returns "there is no text in PATH and the others (left out: ...); ADVICE" for an error.
std::string no_text(std::span<const std::filesystem::path> paths, const LeftOut& left_out);

}  // namespace fsdp::data
