// SPDX-License-Identifier: Apache-2.0
/// @file
/// Selects the files of --data that a tokenizer reads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include <tessera/trainer/data/data_inputs.hpp>

#include "input_files.hpp"
#include "text_units.hpp"

namespace fsdp::data {

/// For caches: increase it when the same files are read differently.
inline constexpr std::int64_t reading_version = 2;

/// How a reader handles a file.
enum class Reading : std::uint8_t {
  text,     ///< reads the file
  binary,   ///< skips the file: it contains a NUL
  another,  ///< skips the file: it has another known format
};

/// The properties of a file that its name and first bytes determine.
struct TextCandidate {
  explicit TextCandidate(const std::filesystem::path& path);  ///< throws InputError for text in UTF-16 or UTF-32

  std::int64_t bytes = 0;
  Reading reading = Reading::text;
  FileKind kind = {};  ///< the known format if `reading` is another
  TextForm form = TextForm::text;
  std::int64_t mark_bytes = 0;  ///< size of the byte order mark at its beginning
  /// Whether it is read as text, because of its name, although its first line is a JSON object.
  bool begins_record = false;
};

/// Files of text, and the skipped files.
struct TextFiles {
  std::vector<TextFile> files = {};
  std::int64_t all_bytes = 0;
  LeftOut left_out = {};
  std::vector<std::string> warnings = {};
};

/// Lists the texts below paths. Files in folders that are not text are skipped. Warns of the first file that begins
/// with a record and is read as text. Throws InputError for a file that is specified by its own path and has a known
/// format, for text that is not UTF-8, and for JSON without records.
TextFiles text_files(std::span<const std::filesystem::path> paths);

/// Throws InputError for TextForm::object. `left_out`: skipped files of the file's folder, for the message.
void require_records(TextForm form, const std::filesystem::path& path, const LeftOut& left_out = {});

/// Returns whether a file's extension is one of JSON.
bool is_named_json(const std::filesystem::path& path);

/// Skips a file that is not text. Throws InputError for a placeholder, and for a known format with its own path.
void leave_out(const TextCandidate& candidate, const InputFile& file, LeftOut& left_out);

/// Returns "there is no text in PATH and the others (left out: ...); ADVICE" for an error.
std::string no_text(std::span<const std::filesystem::path> paths, const LeftOut& left_out);

}  // namespace fsdp::data
