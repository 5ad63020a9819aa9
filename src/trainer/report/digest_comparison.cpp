// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/report/digest_comparison.hpp>

#include <algorithm>
#include <cstddef>
#include <utility>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/terminal_text.hpp>

namespace fsdp::report {
namespace {

/// "step 5", "steps 1 to 41", or "3 steps from 1 to 9" where some between are not there.
std::string steps_in_words(const std::vector<std::int64_t>& steps) {
  if (steps.size() == 1) return message("step ", steps.front());
  const bool all = steps.back() - steps.front() + 1 == std::ssize(steps);
  return message(all ? "steps " : message(steps.size(), " steps from "), steps.front(), " to ", steps.back());
}

/// Indices of the digests that are compared.
std::vector<std::size_t> compared_in(const DigestFile& file, bool streams) {
  std::vector<std::size_t> list;
  for (std::size_t i = 0; i < file.places.size(); ++i)
    if (streams || !is_stream(file.places[i].kind)) list.push_back(i);
  return list;
}

/// Throws InputError unless the digests of both files are of the same.
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

std::vector<std::int64_t> only_in(const DigestFile& a, const DigestFile& b) {
  std::vector<std::int64_t> steps;
  for (const auto& [step, bits] : a.steps)
    if (!b.steps.contains(step)) steps.push_back(step);
  return steps;
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
  for (const auto& [one, two] : {std::pair(&a, &b), std::pair(&b, &a)})
    if (const std::vector<std::int64_t> alone = only_in(*one, *two); !alone.empty())
      found.notes.push_back(message("only ", one->name, " has ", steps_in_words(alone)));
  for (const auto& [step, bits] : a.steps) {
    const auto theirs = b.steps.find(step);
    if (theirs == b.steps.end()) continue;
    for (std::size_t i = 0; i < in_a.size(); ++i) {
      if (bits[in_a[i]] == theirs->second[in_b[i]]) continue;
      found.parting = Parting{.step = step, .place = a.places[in_a[i]]};
      found.parting->place.bits = bits[in_a[i]];
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

}  // namespace fsdp::report
