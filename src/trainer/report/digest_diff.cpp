// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/report/digest_diff.hpp>

#include <string_view>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/trainer/report/step_tensors.hpp>

#include "../../fsdp/core/paths.hpp"

namespace fsdp::report {
namespace {

/// A text as one word of a shell.
std::string shell_word(std::string_view text) {
  std::string word = "'";
  for (const char each : text) word += each == '\'' ? std::string("'\\''") : std::string(1, each);
  return word + "'";
}

/// The line about the tensors of the place where two runs part.
std::string tensors_line(const DigestSource& a, const DigestSource& b, const Parting& parting) {
  if (a.folder && b.folder) {
    if (const auto largest = largest_difference(*a.folder, *b.folder, parting.place)) return in_words(*largest);
    return "the folders do not both have the tensors of that place";
  }
  const bool stream = parting.place.piece >= 0;
  return message("for the tensors: tessera replay CHECKPOINTS --step ", parting.step, " --unit ",
                 shell_word(parting.place.name), stream ? message(" --piece ", parting.place.piece) : "",
                 " --tensors FOLDER, of both runs");
}

}  // namespace

DigestSource read_source(const std::filesystem::path& path) {
  if (!folder_exists(path)) return {.file = read_digests(path)};
  require<InputError>(path_exists(path / digests_name), path.string(), ": holds no ", digests_name,
                      "; give a file that --digests wrote, or a folder that replay --tensors did");
  return {.file = read_digests(path / digests_name), .folder = path};
}

DigestDiff diff(const DigestSource& a, const DigestSource& b) {
  DigestComparison comparison = compare(a.file, b.file);
  DigestDiff result{.same = !comparison.parting, .lines = std::move(comparison.notes)};
  result.lines.push_back(in_words(comparison));
  if (result.same) return result;
  result.lines.push_back(tensors_line(a, b, *comparison.parting));
  if (std::string other = differences(a.file.start, b.file.start); !other.empty())
    result.lines.push_back(std::move(other));
  return result;
}

}  // namespace fsdp::report
