// SPDX-License-Identifier: Apache-2.0
/// @file
/// Ranks never take for granted that they see the same: what they were told and what they opened is compared, and an
/// error of one is an error of all.
///
/// Everything here is collective, over a few bytes a rank.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <comm/ranks.hpp>
#include <fsdp/core/function_ref.hpp>

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
std::vector<std::string> gather_texts(const comm::Ranks& ranks, const std::string& mine, std::string_view label);

namespace detail {

/// on_all_ranks, of what returns nothing.
void call_on_all_ranks(const comm::Ranks& ranks, std::string_view label, FunctionRef<void()> f);

/// What f returns where `run` calls it.
template <class F, class Run>
auto result_of(F& f, const Run& run) {
  using Result = std::invoke_result_t<F&>;
  if constexpr (std::is_void_v<Result>) {
    run(FunctionRef<void()>(f));
  } else {
    std::optional<Result> result;
    const auto keep = [&] { result.emplace(f()); };
    run(FunctionRef<void()>(keep));
    return std::move(*result);
  }
}

}  // namespace detail

/// f() on every rank, which makes no collective. Where it throws on any rank, all throw the error of the first such.
/// `label`: what it is about, a literal.
template <class F>
auto on_all_ranks(const comm::Ranks& ranks, std::string_view label, F f) {
  return detail::result_of(f, [&](FunctionRef<void()> call) { detail::call_on_all_ranks(ranks, label, call); });
}

/// Throws the same InputError on every rank unless flags, policies and the program's build are the same on all.
void agree_on_arguments(const comm::Ranks& ranks, const std::string& arguments);

/// The same for what they opened: lines of "name = value".
void agree_on_opened(const comm::Ranks& ranks, const std::string& opened);

/// The same for a folder of a model or of a checkpoint.
void agree_on_folder(const comm::Ranks& ranks, const std::filesystem::path& folder);

}  // namespace fsdp::train
