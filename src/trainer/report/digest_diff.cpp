// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/report/digest_diff.hpp>

#include <algorithm>
#include <string_view>
#include <utility>

#include <range/v3/view/enumerate.hpp>
#include <range/v3/view/zip.hpp>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/terminal_text.hpp>
#include <tessera/trainer/report/step_tensors.hpp>

#include "../../fsdp/core/paths.hpp"

namespace fsdp::report {
namespace {

/// Returns "step 5", "steps 1 to 41", or "3 steps from 1 to 9" if some steps between are absent.
std::string steps_in_words(const std::vector<std::int64_t>& steps) {
  if (steps.size() == 1) return message("step ", steps.front());
  const bool all = steps.back() - steps.front() + 1 == std::ssize(steps);
  return message(all ? "steps " : message(steps.size(), " steps from "), steps.front(), " to ", steps.back());
}

/// Returns the indices of the digests that are compared.
std::vector<std::size_t> compared_in(const DigestFile& file, bool streams) {
  std::vector<std::size_t> list;
  for (const auto& [i, place] : ranges::views::enumerate(file.places))
    if (streams || !is_stream(place.kind)) list.push_back(i);
  return list;
}

/// Throws InputError unless both files have digests of the same places.
void require_same_places(const DigestFile& a, const std::vector<std::size_t>& in_a, const DigestFile& b,
                         const std::vector<std::size_t>& in_b) {
  for (std::size_t i = 0; i < std::max(in_a.size(), in_b.size()); ++i) {
    const auto words = [&](const DigestFile& file, const std::vector<std::size_t>& list) {
      return i < list.size() ? in_words(file.places[list[i]]) : std::string("nothing");
    };
    const std::string mine = words(a, in_a), theirs = words(b, in_b);
    require<InputError>(mine == theirs, a.name, " and ", b.name, " are of models with other units: where one ", "has ",
                        mine, ", the other has ", theirs);
  }
}

/// Returns the line about the tensors at the place where two runs first differ.
std::string tensors_line(const DigestSource& a, const DigestSource& b, const Divergence& parting) {
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

DigestComparison compare(const DigestFile& a, const DigestFile& b) {
  const std::string other = other_size(a.start, b.start);
  require<InputError>(other.empty(), a.name, " and ", b.name, " are of other models: ", other);
  DigestComparison found;
  const bool streams = a.start.pieces == b.start.pieces;
  if (!streams)
    found.notes.push_back(message("a step has ", a.start.pieces, " pieces in ", a.name, " and ", b.start.pieces, " in ",
                                  b.name, ": gradients and weights alone are compared"));
  const std::vector<std::size_t> in_a = compared_in(a, streams), in_b = compared_in(b, streams);
  require_same_places(a, in_a, b, in_b);
  for (const auto& [one, two] : {std::pair(&a, &b), std::pair(&b, &a)}) {
    std::vector<std::int64_t> alone;
    for (const auto& [step, bits] : one->steps)
      if (!two->steps.contains(step)) alone.push_back(step);
    if (!alone.empty()) found.notes.push_back(message("only ", one->name, " has ", steps_in_words(alone)));
  }
  for (const auto& [step, bits] : a.steps) {
    const auto theirs = b.steps.find(step);
    if (theirs == b.steps.end()) continue;
    for (const auto& [mine, counterpart] : ranges::views::zip(in_a, in_b)) {
      if (bits[mine] == theirs->second[counterpart]) continue;
      found.parting = Divergence{.step = step, .place = a.places[mine]};
      found.parting->place.bits = bits[mine];
      return found;
    }
    found.same_steps.push_back(step);
    found.same_digests += std::ssize(in_a);
  }
  require<InputError>(!found.same_steps.empty(), a.name, " and ", b.name, " have no step in common");
  return found;
}

std::string in_words(const DigestComparison& comparison) {
  std::string text;
  if (!comparison.same_steps.empty())
    text = message(steps_in_words(comparison.same_steps), comparison.same_steps.size() == 1 ? " is" : " are",
                   " the same (", comparison.same_digests, " digests)");
  if (!comparison.parting) return text;
  return message(text, text.empty() ? "" : "; ", "they part in step ", comparison.parting->step, ", ",
                 in_words(comparison.parting->place));
}

std::string differences(const DigestStart& a, const DigestStart& b) {
  std::string text;
  const auto add = [&](const char* what, const auto& mine, const auto& theirs) {
    if (mine != theirs)
      text += message(text.empty() ? "" : "; ", what, shortened_part(mine), " and ", shortened_part(theirs));
  };
  add("stacks are ", a.stack, b.stack);
  add("ranks are ", a.world, b.world);
  add("threads are ", a.threads, b.threads);
  add("instruction sets are ", a.instruction_set, b.instruction_set);
  add("seeds are ", a.seed, b.seed);
  return text;
}

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
