// SPDX-License-Identifier: Apache-2.0
/// @file
/// Ranks never take for granted that they see the same: what they were told and what they opened is compared, and an
/// error of one is an error of all.
///
/// Everything here is collective, over a few bytes a rank.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <comm/collectives.hpp>
#include <fsdp/checkpoint/model_files.hpp>
#include <fsdp/core/error.hpp>
#include <fsdp/core/identity.hpp>

namespace fsdp::train {

/// An error that travels: its family and its text. Without a text there is none.
struct Complaint {
  /// Which exception it becomes again.
  enum class Family : char { other = 'o', input = 'i', diverged = 'd' };
  Family family = Family::other;
  std::string text = {};
};

/// The error that is being handled. Rethrows a CollectiveError: the others cannot be told any more.
Complaint complaint_in_flight();

/// Throws that of the first rank that has one, as its family: with the rank's name, unless all ranks say the same.
void throw_first(const comm::Monitor& monitor, std::span<const std::string> complaints);

/// Throws InputError with the first line in which a rank's text differs from rank 0's, as both have it. `what`: "ranks
/// were started with different arguments". `then`: what to do.
void require_same_texts(const comm::Monitor& monitor, std::span<const std::string> texts, std::string_view what,
                        std::string_view then);

/// Every rank's text, by rank.
template <class Comm>
std::vector<std::string> gather_texts(Comm& communicator, const std::string& mine, std::string_view label) {
  auto longest = static_cast<std::int64_t>(mine.size());
  comm::reduce(communicator, std::span<std::int64_t>(&longest, 1), comm::Reduction::max, {label});
  std::vector<std::string> texts(static_cast<std::size_t>(communicator.size()));
  if (longest == 0) return texts;
  const auto width = static_cast<std::size_t>(longest);
  std::string padded = mine, all(width * texts.size(), '\0');
  padded.resize(width);
  comm::gather_bytes(communicator, std::as_bytes(std::span(padded)), std::as_writable_bytes(std::span(all)), {label});
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    texts[rank] = all.substr(rank * width, width);
    texts[rank].erase(std::min(texts[rank].find('\0'), width));
  }
  return texts;
}

/// f() on every rank, which makes no collective. Where it throws on any rank, all throw the error of the first such.
/// `label`: what it is about, a literal.
template <class Comm, class F>
auto on_all_ranks(Comm& communicator, std::string_view label, F f) {
  using Result = std::invoke_result_t<F&>;
  std::conditional_t<std::is_void_v<Result>, std::optional<bool>, std::optional<Result>> result;
  std::string complaint;
  try {
    if constexpr (std::is_void_v<Result>)
      f();
    else
      result.emplace(f());
  } catch (...) {
    const Complaint mine = complaint_in_flight();
    complaint = static_cast<char>(mine.family) + mine.text;
  }
  throw_first(communicator.monitor(), gather_texts(communicator, complaint, label));
  if constexpr (!std::is_void_v<Result>) return std::move(*result);
}

/// Throws the same InputError on every rank unless flags, policies and the program's build are the same on all.
template <class Comm>
void agree_on_arguments(Comm& communicator, const std::string& arguments) {
  require_same_texts(communicator.monitor(), gather_texts(communicator, arguments + build_identity(), "arguments"),
                     "ranks were started with different arguments", "start all ranks with the same");
}

/// The same for what they opened: lines of "name = value".
template <class Comm>
void agree_on_opened(Comm& communicator, const std::string& opened) {
  require_same_texts(communicator.monitor(), gather_texts(communicator, opened, "what was opened"),
                     "ranks do not see the same", "give all ranks the same files");
}

/// The same for a folder of a model or of a checkpoint.
template <class Comm>
void agree_on_folder(Comm& communicator, const std::filesystem::path& folder) {
  agree_on_opened(communicator,
                  on_all_ranks(communicator, "what was opened", [&] { return checkpoint::folder_identity(folder); }));
}

}  // namespace fsdp::train
