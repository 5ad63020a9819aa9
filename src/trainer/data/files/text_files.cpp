// SPDX-License-Identifier: Apache-2.0
#include "text_files.hpp"

#include <fcntl.h>

#include <algorithm>
#include <optional>
#include <span>
#include <string_view>

#include <nlohmann/json.hpp>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/trainer/data/tokenize.hpp>

#include "../../../fsdp/core/paths.hpp"
#include "../formats/token_folder.hpp"
#include "encodings.hpp"
#include "file_kinds.hpp"
#include "records.hpp"

namespace fsdp::data {
namespace {

constexpr std::string_view binary_reason = "binary";

}  // namespace

TextCandidate::TextCandidate(const std::filesystem::path& path) {
  const FileDescriptor file = open_file(path, O_RDONLY, "read");
  bytes = size_of(file, path);
  const std::vector<std::uint8_t> head = head_of(file, path);
  if (const std::optional<FileKind> known = known_kind(head)) {
    reading = Reading::another;
    kind = known->name;
    advice = known->advice;
    missing = known->missing;
    return;
  }
  require_no_wide_encoding(head, path);
  if (is_binary(head)) {
    reading = Reading::binary;
    return;
  }
  form = form_of(file, path, head);
  const std::string_view text(reinterpret_cast<const char*>(head.data()), head.size());
  mark_bytes = text.starts_with(utf8_mark) ? std::ssize(utf8_mark) : 0;
  const std::string_view line = text.substr(0, text.find('\n'));
  begins_record = !is_named_json(path) && line.starts_with('{') && nlohmann::json::accept(line);
}

void leave_out(const TextCandidate& candidate, const InputFile& file, LeftOut& left_out) {
  const bool matters = file.named || candidate.missing;
  require<InputError>(candidate.reading != Reading::another || !matters, "data: ", file.path.string(), " is ",
                      candidate.kind, ", which is not read; ", candidate.advice);
  const bool has_nul = candidate.reading == Reading::binary && is_named_text(file.path);
  if (has_nul && file.named) refuse_nul(head_of(open_file(file.path, O_RDONLY, "read"), file.path), file.path);
  const std::string_view binary = has_nul ? "texts with a NUL" : binary_reason;
  left_out.add_binary(candidate.reading == Reading::binary ? binary : candidate.kind, file.path);
}

TextFiles text_files(std::span<const std::filesystem::path> paths) {
  const InputFiles inputs = input_files(paths);
  TextFiles found{.left_out = inputs.left_out};
  for (const InputFile& file : inputs.files) {
    const TextCandidate candidate(file.path);
    if (candidate.reading != Reading::text) {
      leave_out(candidate, file, found.left_out);
    } else if (candidate.bytes > 0) {
      found.files.push_back({.path = file.path, .bytes = candidate.bytes, .form = candidate.form});
      found.all_bytes += candidate.bytes;
      if (candidate.begins_record && found.warnings.empty())
        found.warnings.push_back(message("data: ", file.path.string(),
                                         " begins with a record of JSON, and is read as text, by its name; rename it "
                                         "to .jsonl to read the texts of its records"));
    }
  }
  for (const TextFile& file : found.files) {
    require_records(file.form, file.path, found.left_out);
    if (file.form == TextForm::text) require_utf8(file.path);
  }
  return found;
}

std::string no_text(std::span<const std::filesystem::path> paths, const LeftOut& left_out) {
  std::string text = message("there is no text in ", paths.empty() ? "no file" : paths.front().string(),
                             paths.size() > 1 ? " and the others" : "");
  if (!left_out.empty()) text += message(" (", left_out.text(), ")");
  if (left_out.count(binary_reason) > 0)
    text += "; if that holds tokens alone, train on it with --data-format u16 or u32";
  return text;
}

bool holds_text(const std::filesystem::path& path) {
  if (!path_exists(path) || read_token_folder(path)) return false;
  const InputFiles inputs = input_files(std::span(&path, 1));
  return std::ranges::any_of(inputs.files, [](const InputFile& file) {
    const TextCandidate candidate(file.path);
    return candidate.bytes > 0 && candidate.reading == Reading::text;
  });
}

}  // namespace fsdp::data
